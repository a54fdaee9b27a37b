// Signs in and out.

import { send } from './api.ts'
import { answer, endReason, type SessionAnswer, sessionEnded } from './session.ts'

export async function signIn(token: string): Promise<void> {
  const signedIn = await send<SessionAnswer>('/session', { method: 'POST', body: { token } })
  endReason.value = undefined
  answer.value = signedIn
}

export async function signOut(): Promise<void> {
  await send('/session', { method: 'DELETE' })
  sessionEnded(undefined)
}
