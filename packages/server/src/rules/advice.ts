// What is not wrong with a set of rules and still hardly meant: rules that are never in force, and limits that never
// refuse. It errs towards silence: what is told is so, what is not told may be.

import type { Fault, Rule, RuleCondition, RuleLimit } from 'sluice'

/** One per doubt; fields are named by place, as those of mistakes are. */
export function adviceOn(rules: readonly Rule[], nowMs: number): Fault[] {
  const groups = groupsOf(rules)
  return rules.flatMap((rule, index) => {
    const doubts = rule.enabled
      ? [
          ...expiry(rule, nowMs),
          ...regexLooks(rule),
          ...contradictions(rule),
          ...idlePlans(rule),
          ...idleLimits(rule),
          ...eclipse(rule, groups.get(rule.group ?? '') ?? []),
        ]
      : [{ field: 'enabled', value: false, fix: 'it is not in force; remove the rule if it is not needed any more' }]
    return doubts.map((doubt) => ({ ...doubt, field: `rules[${index}].${doubt.field}` }))
  })
}

function expiry({ expires_at: at }: Rule, nowMs: number): Fault[] {
  if (at === undefined || new Date(at).getTime() > nowMs) return []
  return [
    { field: 'expires_at', value: at, fix: 'it has expired and is not in force; remove it, or give a later time' },
  ]
}

/** Accepted as a path, and hardly meant as one. */
function regexLooks({ endpoint_pattern: pattern }: Rule): Fault[] {
  if (!/\.\+|\$$/.test(pattern)) return []
  const fix = 'it is no regular expression and matches this very text only; write * for one segment, ** for the rest'
  return [{ field: 'endpoint_pattern', value: pattern, fix }]
}

/** What the rule demands of a fact in one place and rules out in another. */
function contradictions({ plan, method, when }: Rule): Fault[] {
  const fix = (other: string) => `no request can be this and have ${other}; remove one of them`
  const planIsOut = plan !== undefined && when.plan !== undefined && !allows(when.plan, plan)
  const { method: demanded } = when
  const methodIsOut = demanded !== undefined && method.length > 0 && !method.some((one) => allows(demanded, one))
  return [
    ...(planIsOut ? [{ field: 'when.plan', value: when.plan, fix: fix(`plan ${plan}`) }] : []),
    ...(methodIsOut ? [{ field: 'when.method', value: demanded, fix: fix(`method ${method.join(' or ')}`) }] : []),
  ]
}

function allows(condition: RuleCondition, text: string): boolean {
  if ('not' in condition) return !meets(condition.not, text)
  return meets(condition, text)
}

function meets(values: readonly string[], text: string): boolean {
  return values.some((value) => (value.endsWith('*') ? text.startsWith(value.slice(0, -1)) : value === text))
}

function idlePlans({ plan, by_plan: byPlan }: Rule): Fault[] {
  if (plan === undefined) return []
  return Object.keys(byPlan)
    .filter((name) => name !== plan)
    .map((name) => ({ field: `by_plan.${name}`, value: plan, fix: `never used: the rule is for plan ${plan} only` }))
}

function idleLimits({ limits, algorithm }: Rule): Fault[] {
  return limits.flatMap((limit, index) => {
    const tighter = limits.find((other, place) => {
      return other !== limit && implies(other, limit, algorithm) && !(place > index && implies(limit, other, algorithm))
    })
    if (tighter === undefined) return []
    return [
      {
        field: `limits[${index}]`,
        value: limit.limit,
        fix: `it never refuses: "${tighter.name}" always does so first`,
      },
    ]
  })
}

/** Whether requests that pass one limit always pass another. Known for token buckets and aligned windows only. */
function implies(tight: RuleLimit, loose: RuleLimit, algorithm: Rule['algorithm']): boolean {
  const windows = loose.window_seconds / tight.window_seconds
  const fits = tight.limit * windows <= loose.limit
  if (algorithm === 'fixed_window' || algorithm === 'sliding_window_log') return fits && Number.isInteger(windows)
  return algorithm === 'token_bucket' && fits && (tight.burst ?? tight.limit) <= (loose.burst ?? loose.limit)
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

/** Of the matching rules of a group only the first applies: one that another always comes before never does. */
function eclipse(rule: Rule, group: readonly Rule[]): Fault[] {
  const before = group.find((other) => {
    const rivals = other !== rule && other.enabled && other.mode === rule.mode
    return rivals && comesBefore(other, rule) && covers(other, rule)
  })
  if (before === undefined) return []
  const fix = `it never applies: "${before.rule_id}" of the same group matches all of its requests and comes first`
  return [{ field: 'group', value: rule.group, fix }]
}

function comesBefore(a: Rule, b: Rule): boolean {
  return a.priority > b.priority || (a.priority === b.priority && a.rule_id < b.rule_id)
}

/** Whether every request that `narrow` matches is one that `wide` matches as well, for as long as it is there. */
function covers(wide: Rule, narrow: Rule): boolean {
  const methods =
    wide.method.length === 0 || (narrow.method.length > 0 && narrow.method.every((m) => wide.method.includes(m)))
  const demands = demandsOf(narrow)
  const conditions = [...demandsOf(wide)].every(([fact, condition]) => isWithin(demands.get(fact), condition))
  const layers = wide.enforce_at === 'any' || wide.enforce_at === narrow.enforce_at
  return methods && conditions && layers && wide.expires_at === undefined && patternCovers(wide, narrow)
}

function demandsOf({ plan, when }: Rule): Map<string, RuleCondition> {
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
