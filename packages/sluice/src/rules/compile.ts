// Rule → CompiledRule: precomputes everything that does not depend on the request.

import {
  compileCounterfactual,
  compileLimit,
  DEFAULT_STORE,
  type Limit,
  type LimitNumbers,
} from '../algorithms/limit.ts'
import { hasPermits } from '../algorithms/traits.ts'
import { canonicalAddress } from '../canonical/address.ts'
import { subjectInvalid } from '../errors.ts'
import { mapped, type Sliced } from '../slices.ts'
import type { HashSeed } from '../store/half-sip-hash.ts'
import type { Subject } from '../subject.ts'
import { type Condition, conditionsOf, type FactReader, readerOf, textOf } from './condition.ts'
import { FieldErrors } from './field-errors.ts'
import { ANYWHERE } from './pattern.ts'
import { type Rule, type RuleLimit, scopeName } from './rule.ts'

/** One limit of a rule, ready to be charged. */
export type CompiledLimit = {
  readonly rule: CompiledRule
  readonly name: string
  readonly limit: Limit
  /** The same limit with buckets per address, for requests without the fact of the key (`on_missing: by_ip`). */
  readonly byIp: CompiledLimit | undefined
}

export type CompiledRule = {
  readonly id: string
  readonly rule: Rule
  readonly scope: string
  readonly priority: number
  readonly group: string | undefined
  readonly shadow: boolean
  /** Its buckets hold permits, identified by request id. */
  readonly permits: boolean
  readonly conditions: readonly Condition[]
  readonly expiresUs: number
  /** The key: owner is its first fact, detail the others joined. Undefined if a fact is absent. */
  readonly owner: FactReader
  readonly detail: FactReader | undefined
  readonly cost: number | FactReader
  readonly limits: readonly CompiledLimit[]
  /** The only limit, if the rule has exactly one and needs no special handling. */
  readonly sole: CompiledLimit | undefined
  readonly limitsByPlan: ReadonlyMap<string, readonly CompiledLimit[]>
  /** Applies to requests without a fact of the key. */
  readonly onMissing: Rule['on_missing']
  /** A limit of 0, for such requests with `on_missing: refuse`, and for banned keys. */
  readonly refusal: CompiledLimit | undefined
  /** Set while the rule is under rollout: see versions.ts. */
  readonly version: RuleVersion | undefined
}

export type Variant = 'current' | 'candidate'

/**
 * unpaired: charged as without a rollout. paired: enforced and compared with the other version, so without leases.
 * counterfactual: compared and not enforced.
 */
export type VersionUse = 'unpaired' | 'paired' | 'counterfactual'

/** One version of a rule under rollout. */
export type RuleVersion = {
  readonly rollout: CompiledRollout
  readonly variant: Variant
  readonly use: VersionUse
}

export type CompiledRollout = {
  /** Seed of the draw: salt and rule id. */
  readonly seed: HashSeed
  /** Share of keys under the candidate. */
  readonly share: number
  /** Share of keys whose requests are charged to both versions; 0 if they cannot be compared. */
  readonly pairShare: number
  /** Id of its pair in the charges of a take: `Charge.pair`. */
  readonly pair: number
  /** Reads the fact that the draw is made by: the first of the current scope. */
  readonly owner: FactReader
  /** Whether the bucket is global: then all requests are paired, or none. */
  readonly isShared: boolean
  /** Version for requests without that fact. */
  readonly withoutOwner: Variant
  /** The compiled rules by version and use; a version that does not apply here has none. */
  readonly versions: Readonly<Record<Variant, Readonly<Partial<Record<VersionUse, CompiledRule>>>>>
}

export type CompileOptions = {
  /** Layer of this limiter: rules for the other layer are left out. */
  readonly layer: 'edge' | 'service' | undefined
  readonly ipv6Prefix: number
  /** The stores that a rule can be pinned to. */
  readonly stores: readonly string[]
  /** Reason that regions cannot share a limit. Undefined without regions. */
  readonly refusesSpread?: ((limit: Limit) => string | undefined) | undefined
}

/** Rules compiled earlier with the same options. */
export type KnownRules = ReadonlyMap<Rule, CompiledRule>

/** Compiles the rules of this layer. Rejects settings that would have no effect here. */
export function* compiling(rules: readonly Rule[], options: CompileOptions, known: KnownRules): Sliced<CompiledRule[]> {
  const errors = new FieldErrors()
  for (const rule of rules) rejectIgnored(rule, options, errors.at(rule.rule_id))
  errors.throwIfAny('RULE_INVALID')
  const here = ({ enabled, enforce_at: at }: Rule) =>
    enabled && (at === 'any' || !options.layer || at === options.layer)
  const compiled = yield* mapped(rules.filter(here), (rule) => known.get(rule) ?? compileRule(rule, options))
  for (const rule of compiled) rejectSpread(rule, options, errors.at(rule.id))
  errors.throwIfAny('RULE_INVALID')
  return compiled
}

/** Rejects fields that would have no effect in this deployment. */
function rejectIgnored(rule: Rule, { stores, refusesSpread }: CompileOptions, errors: FieldErrors): void {
  const known = [DEFAULT_STORE, ...stores]
  if (!known.includes(rule.store)) {
    const names = known.map((name) => `"${name}"`).join(' or ')
    errors.add('store', rule.store, `use ${names}: there is no other store`)
  }
  if (rule.spread === 'regional') return
  if (refusesSpread === undefined) {
    errors.add('spread', rule.spread, 'use "regional", or configure the region of this node')
  }
  if (rule.consistency === 'approximate' || rule.consistency === 'local') {
    errors.add('consistency', rule.consistency, 'use leased or strict with spread: global: its pool has to be charged')
  }
  if (rule.shards > 1) errors.add('shards', rule.shards, 'use 1 with spread: global: nodes lease from its pool anyway')
}

/** Some limits cannot be divided between regions. */
function rejectSpread(
  { rule, limits, limitsByPlan }: CompiledRule,
  options: CompileOptions,
  errors: FieldErrors,
): void {
  if (rule.spread === 'regional') return
  const all = [...limits, ...[...limitsByPlan.values()].flat()]
  const [fix] = all.flatMap(({ limit }) => options.refusesSpread?.(limit) ?? [])
  if (fix !== undefined) errors.add('spread', rule.spread, fix)
}

/** Selects the buckets of a version that is compared. */
type Compared = {
  readonly variant: Variant
  readonly use: Exclude<VersionUse, 'unpaired'>
  /** Tag of the rollout in the names of counterfactual buckets. */
  readonly tag: string
}

/** Compiles a version for comparison: strict, and with separate buckets if it is not enforced. */
export function compileRule(rule: Rule, { ipv6Prefix }: CompileOptions, compared?: Compared): CompiledRule {
  const [first, ...others] = rule.scope
  const readers = others.map((fact) => factReader(fact, rule, ipv6Prefix))
  const compiled: CompiledRule = {
    id: rule.rule_id,
    rule,
    scope: scopeName(rule.scope),
    priority: rule.priority,
    group: rule.group,
    shadow: rule.mode === 'shadow',
    permits: hasPermits(rule),
    conditions: conditionsOf(rule),
    expiresUs: rule.expires_at === undefined ? Number.POSITIVE_INFINITY : new Date(rule.expires_at).getTime() * 1000,
    owner: first === undefined ? () => '' : factReader(first, rule, ipv6Prefix),
    detail: readers.length === 0 ? undefined : joined(readers),
    cost: typeof rule.cost === 'number' ? rule.cost : readerOf(rule.cost),
    limits: [],
    sole: undefined,
    limitsByPlan: new Map(),
    onMissing: rule.on_missing,
    refusal: undefined,
    version: undefined,
  }
  const fact = first ?? ''
  const limits = rule.limits.map((limit) => compileWithByIp(compiled, limit, fact, '', compared))
  const byPlan = Object.entries(rule.by_plan).map(
    ([plan, own]) =>
      [plan, own.map((limit) => compileWithByIp(compiled, limit, fact, planSuffix(plan), compared))] as const,
  )
  const unlimited = { name: 'default', limit: 0, window_seconds: 1 }
  const some =
    [...limits, ...byPlan.flatMap(([, own]) => own)][0] ?? compileOne(compiled, unlimited, fact, '', compared)
  const refusal = {
    ...some,
    limit: { ...some.limit, units: 0, capacity: 0, shards: undefined, spread: undefined, seed: undefined },
  }
  const plain = limits.length === 1 && byPlan.length === 0 && !compiled.permits && limits[0]?.limit.units !== 0
  const sole = plain ? limits[0] : undefined
  return Object.assign(compiled, { limits, sole, limitsByPlan: new Map(byPlan), refusal })
}

function compileWithByIp(
  rule: CompiledRule,
  limit: RuleLimit,
  fact: string,
  suffix: string,
  compared: Compared | undefined,
): CompiledLimit {
  const byIp =
    rule.onMissing === 'by_ip' ? compileOne(rule, limit, 'ip', `${suffix}${BY_IP_SUFFIX}`, compared) : undefined
  return { ...compileOne(rule, limit, fact, suffix, compared), byIp }
}

/**
 * Bucket ids consist of rule, limit name and suffix. Plans have separate buckets, because clients of several plans may
 * share an address; shadow rules, so that they never touch the enforced buckets; permits, because an edited rule would
 * otherwise read them as a log.
 */
export function limitId(rule: Rule, limitName: string, suffix: string): string {
  const name = limitName === 'default' ? '' : `#${limitName}`
  return `${rule.mode === 'shadow' ? '~' : ''}${hasPermits(rule) ? '!' : ''}${rule.rule_id}${name}${suffix}`
}

/** Suffixes of limit ids: those of a plan, and those with buckets per address. */
export function planSuffix(plan: string): string {
  return `@${plan}`
}

export const BY_IP_SUFFIX = '@ip'

function compileOne(
  rule: CompiledRule,
  limit: RuleLimit,
  fact: string,
  suffix: string,
  compared: Compared | undefined,
): CompiledLimit {
  const id = limitId(rule.rule, limit.name, suffix)
  const numbers = numbersOf(rule.rule, limit, fact, id, compared === undefined)
  // A limit of 0 must not touch the live bucket: its history would be lost.
  const isSeparate = compared !== undefined && (compared.use === 'counterfactual' || limit.limit === 0)
  return {
    rule,
    name: limit.name,
    byIp: undefined,
    limit: isSeparate ? compileCounterfactual(numbers, compared.variant, compared.tag) : compileLimit(numbers),
  }
}

/** Numbers of a limit, with the settings of its rule; strict without its `consistency`. */
export function numbersOf(
  rule: Rule,
  limit: RuleLimit,
  fact: string,
  id: string,
  withConsistency = true,
): LimitNumbers {
  return {
    id,
    fact,
    algorithm: rule.algorithm,
    generation: rule.version,
    units: limit.limit,
    windowUs: Math.round(limit.window_seconds * 1e6),
    detailBounded: rule.scope.slice(1).every((other) => isBounded(other, rule)),
    onFail: rule.on_fail,
    shards: rule.shards,
    store: rule.store,
    spread: rule.spread === 'global',
    ...(limit.burst === undefined ? {} : { burst: limit.burst }),
    ...(withConsistency ? consistencyOf(rule) : {}),
  }
}

function consistencyOf(rule: Rule): Pick<LimitNumbers, 'lease' | 'approximate' | 'local'> {
  const { consistency, lease, approximate } = rule
  if (consistency === 'local') return { local: true }
  if (consistency === 'approximate') {
    return { approximate: { syncMs: approximate?.sync_ms, maxUnsynced: approximate?.max_unsynced } }
  }
  if (consistency !== 'leased') return {}
  const ttlUs = lease?.ttl_ms === undefined ? undefined : lease.ttl_ms * 1000
  return { lease: { maxUnits: lease?.max_units, maxShare: lease?.max_share, ttlUs } }
}

/** Facts with few values per rule. */
function isBounded(fact: string, rule: Rule): boolean {
  return fact === 'method' || fact === 'plan' || (fact === 'endpoint' && rule.endpoint_pattern !== ANYWHERE)
}

function factReader(fact: string, rule: Rule, ipv6Prefix: number): FactReader {
  if (fact === 'ip') return addressReader(ipv6Prefix)
  if (fact === 'method') return (subject) => keyMethod(textOf('method', subject.method)) || undefined
  if (fact !== 'endpoint') return readerOf(fact)
  const pattern = rule.endpoint_pattern
  if (pattern === ANYWHERE) return ({ method, path }) => (path ? `${keyMethod(method)} ${path}` : undefined)
  return ({ method }) => `${keyMethod(method)} ${pattern}`
}

/** HEAD counts as GET: a separate bucket would double the limit. */
function keyMethod(method = ''): string {
  const upper = method.toUpperCase()
  return upper === 'HEAD' ? 'GET' : upper
}

export function addressReader(ipv6Prefix: number): FactReader {
  return (subject: Subject) => {
    const ip = textOf('ip', subject.ip)
    if (ip === undefined) return undefined
    const address = canonicalAddress(ip, ipv6Prefix)
    if (address !== undefined) return address
    throw subjectInvalid('ip', ip, 'give an IPv4 or IPv6 address')
  }
}

/** Joins facts without collisions: each is preceded by its length. */
function joined(readers: readonly FactReader[]): FactReader {
  const [only] = readers
  if (readers.length === 1 && only !== undefined) return only
  return (subject) => {
    const texts = readers.map((read) => read(subject))
    return texts.some((text) => text === undefined)
      ? undefined
      : texts.map((text) => `${text?.length}:${text}`).join('')
  }
}
