// Flags and answers that the commands of exceptions share.

import { LIFETIME_FIX, lifetimeSeconds } from '../exceptions/lifetime.ts'
import type { ApprovalAnswer } from '../http/bodies/exception-fields.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { escaped } from '../text/escaped.ts'
import { Api } from './api.ts'
import type { Given } from './arguments.ts'
import { CommandError, type Flag } from './command.ts'
import { pathWith } from './list.ts'

export function lifetimeFlag(help: string): Flag {
  return {
    name: 'expires-in',
    value: '<duration>',
    help,
    accepts: (text) => lifetimeSeconds(text) !== undefined,
    fix: LIFETIME_FIX.replace(', or a number of seconds', ''),
  }
}

/** A mistake if the flag is absent. */
export function missing(given: Given, flag: string, what: string): string[] {
  return given.has(flag) ? [] : [`--${flag}: give ${what}`]
}

/** Throws if the flag is absent. */
export function required(given: Given, flag: string, what: string): string {
  const [mistake] = missing(given, flag, what)
  if (mistake !== undefined) throw new CommandError(mistake, EXIT.invalid)
  return given.text(flag) ?? ''
}

/** Sends DELETE with the reason as a parameter. */
export async function remove(api: Api, given: Given, path: string): Promise<void> {
  await api.send('DELETE', pathWith(path, { reason: given.text('reason') }))
}

export async function approve(given: Given, terminal: Terminal, path: string, body: object = {}): Promise<number> {
  const answer = await new Api(given, terminal).post<ApprovalAnswer>(path, body)
  if (given.has('json')) terminal.out(`${JSON.stringify(answer, null, 2)}\n`)
  const { approvals, approvals_required: needed, state } = answer
  const result = state === 'active' ? 'now in force' : 'waiting for more'
  terminal.tell(`approved: ${approvals} of ${needed} approvals, ${result}\n`)
  return EXIT.done
}

export function tellWarnings(terminal: Terminal, warnings: readonly string[] = []): void {
  for (const warning of warnings) terminal.tell(`warning: ${escaped(warning)}\n`)
}

/** `; it needs 2 approvals by others`, or nothing. */
export function waitText(state: string, approvalsRequired: number | undefined): string {
  if (state !== 'pending') return ''
  return `; it needs ${approvalsRequired === 1 ? '1 approval' : `${approvalsRequired} approvals`} by others`
}
