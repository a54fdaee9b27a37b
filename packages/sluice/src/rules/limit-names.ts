// Names of limits and facts of keys, as remote nodes send them: the service derives buckets and numbers from its own
// rules, so a remote node cannot name a bucket or a limit of its own.

import { BY_IP_SUFFIX, limitId, planSuffix } from './compile.ts'
import type { Rule } from './rule.ts'

export type LimitName = {
  readonly ruleId: string
  /** Name of the limit within its rule. */
  readonly name: string
  /** Plan whose limit it is. */
  readonly plan: string | undefined
  /** The bucket belongs to an address, because the request lacks a fact of the key (`on_missing: by_ip`). */
  readonly byIp: boolean
}

/** A limit name with the facts that the key of its buckets consists of. */
export type ScopedName = LimitName & { readonly scope: readonly string[] }

/** Names of all limits, by the ids under which stores know them. */
export function limitNames(rules: readonly Rule[]): ReadonlyMap<string, ScopedName> {
  const names = new Map<string, ScopedName>()
  for (const rule of rules) {
    const { rule_id: ruleId, scope } = rule
    const lists = [[undefined, rule.limits] as const, ...Object.entries(rule.by_plan)]
    for (const [plan, limits] of lists) {
      const suffix = plan === undefined ? '' : planSuffix(plan)
      for (const { name } of limits) {
        names.set(limitId(rule, name, suffix), { ruleId, name, plan, byIp: false, scope })
        names.set(limitId(rule, name, `${suffix}${BY_IP_SUFFIX}`), { ruleId, name, plan, byIp: true, scope })
      }
    }
  }
  return names
}

/** Facts of the key of a bucket: the inverse of the readers in compile.ts. */
export function keyFacts({ scope, byIp }: ScopedName, owner: string, detail: string): Record<string, string> {
  const [first, ...others] = scope
  const facts: Record<string, string> = {}
  if (byIp) facts.ip = owner
  else if (first !== undefined) facts[first] = owner
  if (detail === '' && byIp) return facts
  for (const [index, text] of splitDetail(detail, others.length).entries()) facts[others[index] as string] = text
  return facts
}

/** Several facts are joined with their lengths before them. */
function splitDetail(detail: string, count: number): string[] {
  if (count <= 1) return count === 0 ? [] : [detail]
  const texts: string[] = []
  for (let at = 0; texts.length < count; ) {
    const colon = detail.indexOf(':', at)
    const end = colon + 1 + Number(detail.slice(at, colon))
    texts.push(detail.slice(colon + 1, end))
    at = end
  }
  return texts
}
