// The active version of the rule in the editor: its text, and the version that a change is based on.

import { useApi } from '../../resource.ts'
import type { PlainRule } from '../../rule-text.ts'
import type { Rule, RuleList } from './rule.ts'
import { useCompact } from './use-compact.ts'

export type ActiveRule = {
  /** Version of the rule set. Undefined while it is loading. */
  readonly setVersion: number | undefined
  /** Undefined: there is no such rule, or it is loading. */
  readonly rule: PlainRule | undefined
  /** Version of the rule, for If-Match. */
  readonly version: number | undefined
  readonly error: string | undefined
  reload(): void
}

export function useActiveRule(ruleId: string | undefined): ActiveRule {
  const params = ruleId === undefined ? { limit: 1 } : { search: ruleId }
  const { data, error, reload } = useApi<RuleList>('/rate-limit/rules', { enabled: 'any', ...params })
  const found = data?.rules.find((one: Rule) => one.rule_id === ruleId)
  const rule = useCompact(found)
  const isLoaded = found === undefined || rule !== undefined
  return { setVersion: isLoaded ? data?.version : undefined, rule, version: found?.version, error, reload }
}
