// Buckets of one key, and limits by id: for resets and refunds, which name a bucket without a request.

import { optionInvalid } from '../errors.ts'
import type { BucketName } from '../store/store.ts'
import type { Subject } from '../subject.ts'
import type { CompiledLimit, CompiledRule } from './compile.ts'
import type { FactReader } from './condition.ts'
import type { Exceptions } from './exceptions.ts'
import type { LimitName } from './limit-names.ts'
import { ATTRIBUTE, FACTS } from './rule.ts'

/** The first fact of a key, or its facts by name. */
export type Key = string | Readonly<Record<string, string>>

/** Every bucket of a rule for one key. `canonical` brings the path of a subject into canonical form. */
export function bucketsOfKey(
  rule: CompiledRule,
  key: Key,
  canonical: (subject: Subject) => Subject,
  addressOf: FactReader,
  exceptions: Exceptions | undefined,
): BucketName[] {
  const facts: Readonly<Record<string, string>> = typeof key === 'string' ? { [rule.rule.scope[0] ?? '']: key } : key
  const subject = canonical(subjectOfKey(facts))
  const limits = [...rule.limits, ...[...rule.limitsByPlan.values()].flat()]
  const owner = rule.owner(subject)
  const detail = rule.detail === undefined ? '' : rule.detail(subject)
  const lacksEndpoint = rule.rule.scope.includes('endpoint') && !facts.endpoint
  if (owner !== undefined && detail !== undefined && !lacksEndpoint)
    return bucketsFor(limits, owner, detail, exceptions)
  const address = rule.onMissing === 'by_ip' && !lacksEndpoint ? addressOf(subject) : undefined
  if (address === undefined) {
    throw optionInvalid('key', key, `give every fact of the key: ${rule.rule.scope.join(', ')}`)
  }
  const byIp = limits.map((one) => one.byIp ?? one)
  return bucketsFor(byIp, address, detail ?? '', exceptions)
}

/** The bucket of one limit of a rule, or undefined if the rule has no such limit or the key lacks a fact. */
export function namedBucket(
  rule: CompiledRule,
  { name, plan, byIp }: LimitName,
  facts: Readonly<Record<string, string>>,
  canonical: (subject: Subject) => Subject,
  addressOf: FactReader,
): BucketName | undefined {
  const limits = plan === undefined ? rule.limits : rule.limitsByPlan.get(plan)
  const named = limits?.find((one) => one.name === name)
  const compiled = byIp ? named?.byIp : named
  const subject = canonical(subjectOfKey(facts))
  const owner = byIp ? addressOf(subject) : rule.owner(subject)
  const detail = rule.detail === undefined ? '' : rule.detail(subject)
  if (compiled === undefined || owner === undefined || (detail === undefined && !byIp)) return undefined
  return { limit: compiled.limit, owner, detail: detail ?? '' }
}

/** Also with the limits of exceptions: a node holds their leases separately. */
function bucketsFor(
  limits: readonly CompiledLimit[],
  owner: string,
  detail: string,
  exceptions: Exceptions | undefined,
): BucketName[] {
  const all = new Set(limits.flatMap((one) => [one, exceptions?.limitFor(one, owner) ?? one]))
  return [...all].map(({ limit }) => ({ limit, owner, detail }))
}

/** A subject with only the facts of a key. */
function subjectOfKey(facts: Readonly<Record<string, string>>): Subject {
  const { ip, user, api_key: apiKey, tenant, plan, method, endpoint } = facts
  const space = endpoint?.indexOf(' ') ?? -1
  const [verb, path] = space < 0 ? [method, endpoint] : [endpoint?.slice(0, space), endpoint?.slice(space + 1)]
  const others = Object.entries(facts).filter(([fact]) => !FACTS.some((name) => name === fact))
  const attributes = others.map(([fact, value]) => [
    fact.startsWith(ATTRIBUTE) ? fact.slice(ATTRIBUTE.length) : fact,
    value,
  ])
  return { ip, user, apiKey, tenant, plan, method: verb, path, attributes: Object.fromEntries(attributes) }
}

/** Whether a version has the same key as `rule`: buckets of another key cannot be named by it. */
export function hasScopeOf({ rule: { scope } }: CompiledRule): (other: CompiledRule) => boolean {
  return (other) => other.rule.scope.join() === scope.join()
}

/** Two limits have one id if their rule is under rollout. */
export function limitsById(rules: readonly CompiledRule[]): ReadonlyMap<string, readonly CompiledLimit[]> {
  const map = new Map<string, CompiledLimit[]>()
  for (const one of rules.flatMap(limitsOf)) map.set(one.limit.id, [...(map.get(one.limit.id) ?? []), one])
  return map
}

function limitsOf({ limits, limitsByPlan }: CompiledRule): CompiledLimit[] {
  return [...limits, ...[...limitsByPlan.values()].flat()].flatMap((one) => [one, one.byIp ?? one])
}
