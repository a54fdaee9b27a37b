// Validates the text of a rule with the service's own parser, while the user types.

import { useEffect, useState } from 'preact/hooks'
import { messageOf, send } from '../../api.ts'
import type { PlainRule } from '../../rule-text.ts'
import type { Rule } from './rule.ts'

/** Time without a key press before the text is sent. */
const PAUSE_MS = 300

export type Finding = { readonly field: string; readonly fix: string; readonly line?: number }

export type Validation = {
  readonly valid: boolean
  readonly errors: readonly Finding[]
  readonly warnings: readonly Finding[]
  readonly rule?: Rule
  readonly compact?: PlainRule
  /** Set if the text could not be checked: the service does not answer, or refuses. */
  readonly failure?: string
}

/** Undefined while the text is being checked. */
export function useValidation(text: string): { readonly result: Validation | undefined; readonly isFresh: boolean } {
  const [state, setState] = useState<{ text: string; result: Validation }>()
  useEffect(() => {
    const abort = new AbortController()
    const timer = setTimeout(async () => {
      const result = await validate(text, abort.signal).catch((error: unknown) => failed(messageOf(error)))
      if (!abort.signal.aborted) setState({ text, result })
    }, PAUSE_MS)
    return () => {
      clearTimeout(timer)
      abort.abort()
    }
  }, [text])
  return { result: state?.result, isFresh: state?.text === text }
}

function validate(text: string, signal: AbortSignal): Promise<Validation> {
  const headers = { 'content-type': 'application/yaml' }
  return send<Validation>('/rate-limit/rules/validate', { method: 'POST', body: text, headers, signal })
}

function failed(failure: string): Validation {
  return { valid: false, errors: [], warnings: [], failure }
}
