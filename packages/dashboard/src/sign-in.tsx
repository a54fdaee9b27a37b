// Sign-in page. The token is its only input.

import { useState } from 'preact/hooks'
import { messageOf } from './api.ts'
import { TextField } from './components/field.tsx'
import { Failure, Notice } from './components/notice.tsx'
import { answer, endReason } from './session.ts'
import { signIn } from './session-calls.ts'

export function SignIn() {
  const [token, setToken] = useState('')
  const [error, setError] = useState<string>()
  const [isBusy, setBusy] = useState(false)
  const submit = async (event: Event) => {
    event.preventDefault()
    setBusy(true)
    setError(undefined)
    try {
      await signIn(token.trim())
    } catch (failure) {
      setError(messageOf(failure))
      setBusy(false)
    }
  }
  return (
    <main class="alone">
      <form class="sign-in" onSubmit={submit}>
        <h1>
          <img src="/favicon.svg" alt="" width="28" height="28" /> Sluice
        </h1>
        {endReason.value !== undefined && <Notice tone="warning">{endReason.value}</Notice>}
        <TextField
          label="Token"
          hint={<Hint />}
          type="password"
          autocomplete="current-password"
          required
          autoFocus
          value={token}
          onValue={setToken}
        />
        <Failure error={error} />
        <button type="submit" class="primary" disabled={isBusy || token.trim() === ''}>
          Sign in
        </button>
        <a href="/learn">Try a rate limiter without signing in</a>
      </form>
    </main>
  )
}

function Hint() {
  if (answer.value?.can_sign_in === false) {
    return <>This node has no tokens: start it with --admin-token or --tokens-file, or with a database.</>
  }
  return (
    <>
      An API token with the role viewer or higher. The first start of a service prints one; create more with{' '}
      <code>sluice token create</code>.
    </>
  )
}
