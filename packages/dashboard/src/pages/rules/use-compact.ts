// A rule without its default values, as its text would be in a file: the service removes them.

import { useCallback } from 'preact/hooks'
import { send } from '../../api.ts'
import { useResource } from '../../resource.ts'
import type { PlainRule } from '../../rule-text.ts'
import type { Validation } from './validation.ts'

/** Undefined while it is loading. */
export function useCompact(rule: PlainRule | undefined): PlainRule | undefined {
  const key = JSON.stringify(rule)
  const load = useCallback(
    async (signal: AbortSignal) => {
      const answer = await send<Validation>('/rate-limit/rules/validate', { method: 'POST', body: rule, signal })
      return { key, compact: answer.compact }
    },
    [key],
  )
  const { data } = useResource(load, { enabled: rule !== undefined })
  return rule !== undefined && data?.key === key ? data.compact : undefined
}
