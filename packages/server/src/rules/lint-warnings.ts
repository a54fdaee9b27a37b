// Lint warnings about valid rules that probably do not do what their author intended: rules that never apply, limits
// that never refuse. No false positives: every warning is correct, but some such rules are not found.

import type { AlgorithmName, FieldError, Rule, RuleCondition, RuleLimit } from 'sluice'

/** One field error per warning; fields are named by index, like those of invalid rules. */
export function lintWarnings(rules: readonly Rule[], nowMs: number): FieldError[] {
  const groups = groupsOf(rules)
  return rules.flatMap((rule, index) => {
    const warnings = rule.enabled
      ? [
          ...expired(rule, nowMs),
          ...regexPattern(rule),
          ...contradictions(rule),
          ...unusedPlans(rule),
          ...redundantLimits(rule),
          ...neverApplies(rule, groups.get(rule.group ?? '') ?? []),
        ]
      : [{ field: 'enabled', value: false, fix: 'the rule is disabled; remove it if it is no longer needed' }]
    return warnings.map((warning) => ({ ...warning, field: `rules[${index}].${warning.field}` }))
  })
}

function expired({ expires_at: at }: Rule, nowMs: number): FieldError[] {
  if (at === undefined || new Date(at).getTime() > nowMs) return []
  return [{ field: 'expires_at', value: at, fix: 'the rule has expired; remove it, or give a later time' }]
}

/** Finds patterns that are valid paths but look like regular expressions. */
function regexPattern({ endpoint_pattern: pattern }: Rule): FieldError[] {
  if (!/\.\+|\$$/.test(pattern)) return []
  const fix = 'patterns are not regular expressions and match literally; write * for one segment, ** for the rest'
  return [{ field: 'endpoint_pattern', value: pattern, fix }]
}

/** Finds conditions on the same fact that exclude each other. */
function contradictions({ plan, method, when }: Rule): FieldError[] {
  const fix = (other: string) => `no request can match this and ${other}; remove one of them`
  const planConflicts = plan !== undefined && when.plan !== undefined && !allows(when.plan, plan)
  const { method: required } = when
  const methodConflicts = required !== undefined && method.length > 0 && !method.some((one) => allows(required, one))
  return [
    ...(planConflicts ? [{ field: 'when.plan', value: when.plan, fix: fix(`plan ${plan}`) }] : []),
    ...(methodConflicts ? [{ field: 'when.method', value: required, fix: fix(`method ${method.join(' or ')}`) }] : []),
  ]
}

function allows(condition: RuleCondition, text: string): boolean {
  if ('not' in condition) return !meets(condition.not, text)
  return meets(condition, text)
}

function meets(values: readonly string[], text: string): boolean {
  return values.some((value) => (value.endsWith('*') ? text.startsWith(value.slice(0, -1)) : value === text))
}

function unusedPlans({ plan, by_plan: byPlan }: Rule): FieldError[] {
  if (plan === undefined) return []
  return Object.keys(byPlan)
    .filter((name) => name !== plan)
    .map((name) => ({
      field: `by_plan.${name}`,
      value: plan,
      fix: `never used, because the rule applies to plan ${plan} only`,
    }))
}

function redundantLimits({ limits, algorithm }: Rule): FieldError[] {
  return limits.flatMap((limit, index) => {
    const tighter = limits.find((other, otherIndex) => {
      return (
        other !== limit && implies(other, limit, algorithm) && !(otherIndex > index && implies(limit, other, algorithm))
      )
    })
    if (tighter === undefined) return []
    return [
      {
        field: `limits[${index}]`,
        value: limit.limit,
        fix: `never refuses, because "${tighter.name}" always refuses first`,
      },
    ]
  })
}

/** Condition under which a limit with the lower or equal rate implies another one; `unknown`: not detected. */
const IMPLIED_BY: Readonly<Record<AlgorithmName, 'burst' | 'whole windows' | 'unknown'>> = {
  token_bucket: 'burst',
  leaky_bucket: 'unknown',
  fixed_window: 'whole windows',
  sliding_window: 'unknown',
  sliding_window_log: 'whole windows',
  concurrency: 'unknown',
}

/** Whether `tight` allows only what `loose` allows. */
function implies(tight: RuleLimit, loose: RuleLimit, algorithm: AlgorithmName): boolean {
  const windows = loose.window_seconds / tight.window_seconds
  if (tight.limit * windows > loose.limit) return false
  const condition = IMPLIED_BY[algorithm]
  if (condition === 'whole windows') return Number.isInteger(windows)
  return condition === 'burst' && (tight.burst ?? tight.limit) <= (loose.burst ?? loose.limit)
}

function groupsOf(rules: readonly Rule[]): Map<string, Rule[]> {
  const groups = new Map<string, Rule[]>()
  for (const rule of rules) {
    if (rule.group === undefined) continue
    const known = groups.get(rule.group)
    if (known === undefined) groups.set(rule.group, [rule])
    else known.push(rule)
  }
  return groups
}

/** Finds rules that never apply, because another rule of the group always matches first. */
function neverApplies(rule: Rule, group: readonly Rule[]): FieldError[] {
  const before = group.find((other) => {
    const competes = other !== rule && other.enabled && other.mode === rule.mode
    return competes && comesBefore(other, rule) && covers(other, rule)
  })
  if (before === undefined) return []
  const fix = `never applies: "${before.rule_id}" of the same group matches all of its requests and takes precedence`
  return [{ field: 'group', value: rule.group, fix }]
}

function comesBefore(a: Rule, b: Rule): boolean {
  return a.priority > b.priority || (a.priority === b.priority && a.rule_id < b.rule_id)
}

/** Whether `wide` matches every request that `narrow` matches, and does not expire. */
function covers(wide: Rule, narrow: Rule): boolean {
  const methods =
    wide.method.length === 0 || (narrow.method.length > 0 && narrow.method.every((m) => wide.method.includes(m)))
  const narrowConditions = conditionsOf(narrow)
  const conditions = [...conditionsOf(wide)].every(([fact, condition]) =>
    isWithin(narrowConditions.get(fact), condition),
  )
  const layers = wide.enforce_at === 'any' || wide.enforce_at === narrow.enforce_at
  return methods && conditions && layers && wide.expires_at === undefined && patternCovers(wide, narrow)
}

function conditionsOf({ plan, when }: Rule): Map<string, RuleCondition> {
  return new Map([...Object.entries(when), ...(plan === undefined ? [] : [['plan', [plan]] as const])])
}

function isWithin(narrow: RuleCondition | undefined, wide: RuleCondition): boolean {
  if (narrow === undefined) return false
  if (JSON.stringify(narrow) === JSON.stringify(wide)) return true
  return !('not' in narrow) && !('not' in wide) && narrow.every((value) => wide.includes(value))
}

function patternCovers({ endpoint_pattern: wide }: Rule, { endpoint_pattern: narrow }: Rule): boolean {
  const wideSegments = wide.split('/')
  const narrowSegments = narrow.split('/')
  for (const [index, segment] of wideSegments.entries()) {
    if (segment === '**') return true
    const other = narrowSegments[index]
    const matches = isOneSegment(segment) ? other !== undefined && other !== '**' : other === segment
    if (!matches) return false
  }
  return wideSegments.length === narrowSegments.length
}

function isOneSegment(segment: string): boolean {
  return segment === '*' || segment.startsWith(':')
}
