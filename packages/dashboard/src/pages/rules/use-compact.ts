// An active rule with the fields that were written, as its text would be in a file: the service knows which ones were.

import { useCallback } from 'preact/hooks'
import { get } from '../../api.ts'
import { useResource } from '../../resource.ts'
import type { PlainRule } from '../../rule-text.ts'
import type { Rule } from './rule.ts'

/** Undefined while it is loading. */
export function useCompact(rule: Rule | undefined): PlainRule | undefined {
  const [ruleId, key] = [rule?.rule_id ?? '', `${rule?.rule_id} ${rule?.version}`]
  const load = useCallback(
    async (signal: AbortSignal) => {
      const path = `/rate-limit/rules/${encodeURIComponent(ruleId)}`
      return { key, written: await get<PlainRule>(path, { form: 'written' }, signal) }
    },
    [ruleId, key],
  )
  const { data } = useResource(load, { enabled: rule !== undefined })
  return rule !== undefined && data?.key === key ? data.written : undefined
}
