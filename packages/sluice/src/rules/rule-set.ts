// One immutable version of all rules. Turns a subject into charges.

import type { Limit } from '../algorithms/limit.ts'
import type { Clock } from '../clock.ts'
import { type LimiterError, optionInvalid, subjectInvalid } from '../errors.ts'
import { mapped, type Sliced } from '../slices.ts'
import type { BucketName, Charge, ChargeKind } from '../store/store.ts'
import { requireKnownFacts, type Subject } from '../subject.ts'
import { ChargeSet, emptyList, RuleCharge } from './charge-set.ts'
import { addressReader, type CompiledLimit, type CompiledRule, type CompileOptions, compiling } from './compile.ts'
import { type FactReader, textOf } from './condition.ts'
import { coversPath, type Mismatch, mismatchOf, type RuleExplanation } from './explain.ts'
import { matchingRules, type PathMatch, RuleIndex } from './match.ts'
import { describeLimit } from './most-per-window.ts'
import { parsing } from './parse.ts'
import { ATTRIBUTE, FACTS, type Rule } from './rule.ts'

export const COST_MAX = 1_000_000_000
/** Longer facts are rejected before they are hashed, stored or logged. */
export const FACT_LENGTH_MAX = 1024

type Key = string | Readonly<Record<string, string>>

/** Rules disabled by the kill switch: these, or all. */
export type Suspended = ReadonlySet<string> | 'everything'

export const NOTHING_SUSPENDED: Suspended = new Set()

export class RuleSet {
  readonly rules: readonly Rule[]
  readonly version: number
  readonly #compiled: readonly CompiledRule[]
  readonly #index: RuleIndex
  readonly #clock: Clock
  readonly #grouped: boolean
  readonly #expiring: boolean
  readonly #address: FactReader
  readonly #nothing: ChargeSet
  #byId: ReadonlyMap<string, Rule> | undefined
  #limits: ReadonlyMap<string, Limit> | undefined

  private constructor(
    rules: readonly Rule[],
    version: number,
    compiled: readonly CompiledRule[],
    index: RuleIndex,
    { ipv6Prefix }: CompileOptions,
    clock: Clock,
  ) {
    this.rules = rules
    this.version = version
    this.#compiled = compiled
    this.#index = index
    this.#clock = clock
    this.#grouped = this.#compiled.some(({ group }) => group !== undefined)
    this.#expiring = this.#compiled.some(({ expiresUs }) => expiresUs !== Number.POSITIVE_INFINITY)
    this.#address = addressReader(ipv6Prefix)
    this.#nothing = new ChargeSet([], [], undefined, version)
  }

  /**
   * From rules in any spelling. Throws RULE_INVALID. Rules that are unchanged since `previous`, a set with the same
   * options, are reused: this is cheap, and leases of their buckets stay valid.
   */
  static *of(
    input: unknown,
    version: number,
    options: CompileOptions,
    clock: Clock,
    previous?: RuleSet,
  ): Sliced<RuleSet> {
    const known = new Map<Rule, CompiledRule>()
    yield* mapped(previous === undefined ? [] : previous.#compiled, (compiled) => known.set(compiled.rule, compiled))
    const parsed = yield* parsing(input, known)
    const rules = previous ? yield* mapped(parsed, (rule) => previous.#unchanged(rule) ?? rule) : parsed
    const compiled = yield* compiling(rules, options, known)
    const index = yield* RuleIndex.of(compiled)
    return new RuleSet(rules, version, compiled, index, options, clock)
  }

  rule(ruleId: string): Rule | undefined {
    this.#byId ??= new Map(this.rules.map((rule) => [rule.rule_id, rule]))
    return this.#byId.get(ruleId)
  }

  /** The rule of this set with the same content. */
  #unchanged(rule: Rule): Rule | undefined {
    const before = this.rule(rule.rule_id)
    if (before === undefined || before === rule) return before
    if (before.version !== rule.version || before.updated_at !== rule.updated_at) return undefined
    return JSON.stringify(before) === JSON.stringify(rule) ? before : undefined
  }

  /** Charges of a request, and their limits. `requestId` identifies permits. */
  chargesFor(given: Subject, requestId: string | (() => string), suspended: Suspended = NOTHING_SUSPENDED): ChargeSet {
    const { version } = this
    if (typeof given !== 'object' || given === null) throw subjectInvalid('subject', given, 'give an object of facts')
    requireKnownFacts(given)
    const cost = costOf(given)
    const match = this.#index.matchPath(textOf('path', given.path) ?? '/')
    const subject = withPath(given, match)
    const rules = this.#match(subject, match, suspended)
    if (rules.length === 0) return this.#nothing
    const [first] = rules
    const sole = rules.length === 1 && first?.sole ? this.#chargeSole(first, first.sole, subject, cost) : undefined
    if (sole !== undefined) return sole
    const limits = emptyList<CompiledLimit>()
    const charges = emptyList<Charge>()
    let permits = false
    let ban: CompiledLimit | undefined
    for (const rule of rules) {
      const zeroLimit = this.#charge(rule, subject, cost, limits, charges)
      if (zeroLimit !== undefined && (ban === undefined || outranks(rule, ban.rule))) ban = zeroLimit
      if (rule.permits) permits = true
    }
    if (ban !== undefined) return new ChargeSet([banCharge(ban)], [ban], undefined, version)
    const op = permits ? { id: typeof requestId === 'string' ? requestId : requestId() } : undefined
    return new ChargeSet(charges, limits, op, version)
  }

  /** Fast path: one rule with one limit, and all facts of its key. Undefined: take the general path. */
  #chargeSole(rule: CompiledRule, sole: CompiledLimit, subject: Subject, cost: number): ChargeSet | undefined {
    const owner = rule.owner(subject)
    const detail = rule.detail === undefined ? '' : rule.detail(subject)
    if (owner === undefined || owner.length > FACT_LENGTH_MAX) return undefined
    if (detail === undefined || detail.length > FACT_LENGTH_MAX) return undefined
    const units = unitsOf(rule, subject, cost)
    const charge = new RuleCharge(sole.limit, owner, detail, units, kindOf(rule))
    return new ChargeSet([charge], rule.limits, undefined, this.version)
  }

  /** Every bucket that a rule can have for one key. */
  bucketsOf(ruleId: string, key: Key): BucketName[] {
    const rule = this.#compiled.find(({ id }) => id === ruleId)
    if (rule === undefined) throw optionInvalid('ruleId', ruleId, 'give the id of an active rule')
    const facts: Readonly<Record<string, string>> = typeof key === 'string' ? { [rule.rule.scope[0] ?? '']: key } : key
    const given = subjectOfKey(facts)
    const subject = withPath(given, this.#index.matchPath(given.path ?? '/'))
    const limits = [...rule.limits, ...[...rule.limitsByPlan.values()].flat()]
    const owner = rule.owner(subject)
    const detail = rule.detail === undefined ? '' : rule.detail(subject)
    const lacksEndpoint = rule.rule.scope.includes('endpoint') && !facts.endpoint
    if (owner !== undefined && detail !== undefined && !lacksEndpoint)
      return limits.map(({ limit }) => ({ limit, owner, detail }))
    const address = rule.onMissing === 'by_ip' && !lacksEndpoint ? this.#address(subject) : undefined
    if (address === undefined)
      throw optionInvalid('key', key, `give every fact of the key: ${rule.rule.scope.join(', ')}`)
    return limits.map(({ limit, byIp }) => ({ limit: byIp?.limit ?? limit, owner: address, detail: detail ?? '' }))
  }

  /** The limit with an id; undefined if its rule was removed, or is for another layer. */
  limitOf(id: string): Limit | undefined {
    this.#limits ??= new Map(this.#compiled.flatMap(limitsOf).map((limit) => [limit.id, limit]))
    return this.#limits.get(id)
  }

  /** How each rule applies to a request, and why. In the order of the rules; tests every one of them. */
  *explain(given: Subject, suspended: Suspended): Sliced<RuleExplanation[]> {
    const match = this.#index.matchPath(textOf('path', given.path) ?? '/')
    const subject = withPath(given, match)
    const readings = [match, ...match.otherReadings].map(({ path }) => path)
    const nowUs = this.#clock.nowUs()
    const compiled = new Map(this.#compiled.map((rule) => [rule.id, rule]))
    const why = new Map<string, Mismatch>()
    for (const rule of this.rules) {
      const id = rule.rule_id
      const mismatch = mismatchOf(rule, compiled.get(id), subject, readings, nowUs)
      if (mismatch !== undefined) why.set(id, mismatch)
      else if (isSuspended(suspended, id)) why.set(id, { reason: 'suspended', detail: 'disabled by the kill switch' })
      yield
    }
    const matched = [...compiled.values()].filter(({ id }) => !why.has(id))
    this.#explainCharges(subject, explainGroups(matched, readings, why), why)
    return this.rules.map(({ rule_id: ruleId }) => {
      return { ruleId, ...(why.get(ruleId) ?? applies(compiled.get(ruleId), subject)) }
    })
  }

  /** Adds the reasons of matching rules that do not charge the request. */
  #explainCharges(subject: Subject, chosen: ReadonlySet<CompiledRule>, why: Map<string, Mismatch>): void {
    let ban: CompiledRule | undefined
    for (const rule of chosen) {
      const charges: Charge[] = []
      const zeroLimit = this.#charge(rule, subject, costOf(subject), [], charges)
      if (zeroLimit !== undefined && (ban === undefined || outranks(rule, ban))) ban = rule
      if (zeroLimit === undefined && charges.length === 0) why.set(rule.id, chargesNothing(rule, subject))
    }
    for (const { id } of chosen) {
      if (ban === undefined || id === ban.id || why.has(id)) continue
      why.set(id, { reason: 'barred', detail: `${ban.id} refuses every request, so no other rule is charged` })
    }
  }

  #match(subject: Subject, match: PathMatch, suspended: Suspended): readonly CompiledRule[] {
    const matched = matchingRules(match, subject, textOf('method', subject.method) ?? '')
    const live = this.#expiring ? unexpired(matched, this.#clock.nowUs()) : matched
    const left = suspended === NOTHING_SUSPENDED ? live : live.filter(({ id }) => !isSuspended(suspended, id))
    const chosen = this.#grouped ? onePerGroup(left) : left
    if (match.otherReadings.length === 0) return chosen
    // Groups are resolved per reading: a path is exempt only if it is exempt in every reading.
    return [...new Set([chosen, ...match.otherReadings.map((other) => this.#match(subject, other, suspended))].flat())]
  }

  /** Adds the charges of one rule, or returns its limit of 0, which refuses every request. */
  #charge(
    rule: CompiledRule,
    subject: Subject,
    cost: number,
    limits: CompiledLimit[],
    charges: Charge[],
  ): CompiledLimit | undefined {
    let owner = rule.owner(subject)
    const detail = rule.detail === undefined ? '' : rule.detail(subject)
    const applicable =
      rule.limitsByPlan.size === 0 ? rule.limits : (rule.limitsByPlan.get(subject.plan ?? '') ?? rule.limits)
    const missing = owner === undefined || detail === undefined
    if (missing && (rule.onMissing === 'skip' || applicable.length === 0)) return undefined
    if (missing) owner = rule.onMissing === 'by_ip' ? this.#address(subject) : undefined
    if (owner === undefined) return refuse(rule, limits, charges)
    if (owner.length > FACT_LENGTH_MAX) throw tooLong(rule, owner)
    if (detail !== undefined && detail.length > FACT_LENGTH_MAX) throw tooLong(rule, detail)
    const units = unitsOf(rule, subject, cost)
    const kind = kindOf(rule)
    for (const one of applicable) {
      const compiled = missing && one.byIp !== undefined ? one.byIp : one
      if (compiled.limit.units === 0 && !rule.shadow) return compiled
      limits.push(compiled)
      charges.push(new RuleCharge(compiled.limit, owner, detail ?? '', units, kind))
    }
    return undefined
  }
}

function isSuspended(suspended: Suspended, ruleId: string): boolean {
  return suspended === 'everything' || suspended.has(ruleId)
}

/** Matching rules that apply: one of each group, per reading of the path. */
function explainGroups(
  matched: readonly CompiledRule[],
  readings: readonly string[],
  why: Map<string, Mismatch>,
): ReadonlySet<CompiledRule> {
  const chosen = new Set(
    readings.flatMap((path) => onePerGroup(matched.filter(({ rule }) => coversPath(rule.endpoint_pattern, path)))),
  )
  for (const { id, group, shadow } of matched.filter((rule) => !chosen.has(rule))) {
    const better = [...chosen].find((rule) => rule.group === group && rule.shadow === shadow)
    why.set(id, { reason: 'group', detail: `in group ${group}, ${better?.id} has priority` })
  }
  return chosen
}

/** The limits of a rule for the plan of a request. */
function limitsFor(rule: CompiledRule, { plan = '' }: Subject): readonly CompiledLimit[] {
  return rule.limitsByPlan.get(plan) ?? rule.limits
}

function applies(rule: CompiledRule | undefined, subject: Subject): Mismatch {
  const limits = rule === undefined ? [] : limitsFor(rule, subject).map(({ limit }) => describeLimit(limit))
  return { reason: null, detail: ['it applies', limits.join('; ')].filter((text) => text !== '').join(': ') }
}

/** Why a matching rule charges nothing. */
function chargesNothing(rule: CompiledRule, subject: Subject): Mismatch {
  if (limitsFor(rule, subject).length === 0) return { reason: 'unlimited', detail: 'it sets no limit for this request' }
  const fact = rule.owner(subject) === undefined ? (rule.rule.scope[0] ?? '') : rule.rule.scope.slice(1).join(', ')
  return { reason: 'missing_fact', fact, detail: `the request has no ${fact}, and on_missing is ${rule.onMissing}` }
}

function unexpired(rules: readonly CompiledRule[], nowUs: number): CompiledRule[] {
  return rules.filter(({ expiresUs }) => expiresUs > nowUs)
}

/**
 * Keeps the rule with the highest priority of each group. Shadow rules form separate groups: a trial must not replace
 * the enforced rule.
 */
function onePerGroup(rules: readonly CompiledRule[]): CompiledRule[] {
  const best = new Map<string, CompiledRule>()
  const groupOf = ({ shadow, group }: CompiledRule) => `${shadow} ${group}`
  for (const rule of rules) {
    if (rule.group === undefined) continue
    const held = best.get(groupOf(rule))
    if (held === undefined || outranks(rule, held)) best.set(groupOf(rule), rule)
  }
  return rules.filter((rule) => rule.group === undefined || best.get(groupOf(rule)) === rule)
}

/** Higher priority first, then the id that sorts first. */
function outranks(a: CompiledRule, b: CompiledRule): boolean {
  return a.priority > b.priority || (a.priority === b.priority && a.id < b.id)
}

/** Applies `on_missing: refuse`. In shadow mode, the refusal is an ordinary outcome. */
function refuse(rule: CompiledRule, limits: CompiledLimit[], charges: Charge[]): CompiledLimit | undefined {
  if (!rule.shadow || rule.refusal === undefined) return rule.refusal
  limits.push(rule.refusal)
  charges.push(banCharge(rule.refusal))
  return undefined
}

/** A limit of 0 refuses everyone, so all clients share one charge. */
function banCharge({ limit, rule }: CompiledLimit): Charge {
  return new RuleCharge(limit, '', '', 1, kindOf(rule))
}

/** The subject with its path in canonical form. */
function withPath(subject: Subject, { path }: PathMatch): Subject {
  return !subject.path || subject.path === path ? subject : { ...subject, path }
}

function kindOf({ shadow }: CompiledRule): ChargeKind {
  return shadow ? 'shadow' : 'enforce'
}

/** Units that a rule charges for a request of this cost. */
function unitsOf(rule: CompiledRule, subject: Subject, cost: number): number {
  return typeof rule.cost === 'number' ? rule.cost * cost : attributeCost(rule.cost(subject), rule)
}

function costOf({ cost }: Subject): number {
  return cost === undefined ? 1 : checkedCost('cost', cost, cost)
}

function checkedCost(field: string, cost: number, given: unknown): number {
  if (Number.isSafeInteger(cost) && cost >= 1 && cost <= COST_MAX) return cost
  throw subjectInvalid(field, given, `give a whole number from 1 to ${COST_MAX}`)
}

/** Without the cost attribute, a request costs 1. */
function attributeCost(text: string | undefined, { rule: { cost } }: CompiledRule): number {
  if (text === undefined) return 1
  const name = String(cost)
  return checkedCost(name.startsWith(ATTRIBUTE) ? name : `${ATTRIBUTE}${name}`, Number(text), text)
}

/** A subject with only the facts of a key. */
function subjectOfKey(facts: Readonly<Record<string, string>>): Subject {
  const { ip, user, api_key: apiKey, tenant, plan, method, endpoint } = facts
  const [verb, path] = endpoint?.includes(' ') ? endpoint.split(' ', 2) : [method, endpoint]
  const others = Object.entries(facts).filter(([fact]) => !FACTS.some((name) => name === fact))
  const attributes = others.map(([fact, value]) => [
    fact.startsWith(ATTRIBUTE) ? fact.slice(ATTRIBUTE.length) : fact,
    value,
  ])
  return { ip, user, apiKey, tenant, plan, method: verb, path, attributes: Object.fromEntries(attributes) }
}

function tooLong(rule: CompiledRule, text: string): LimiterError {
  return subjectInvalid(rule.scope, text, `give a key of at most ${FACT_LENGTH_MAX} characters`)
}

function limitsOf({ limits, limitsByPlan }: CompiledRule): Limit[] {
  return [...limits, ...[...limitsByPlan.values()].flat()].flatMap(({ limit, byIp }) => [limit, byIp?.limit ?? limit])
}
