// One version of all rules: turns a subject into the charges it has to pay. Immutable, so a check sees it as a whole.

import type { Limit } from '../algorithms/limit.ts'
import type { Clock } from '../clock.ts'
import { type LimiterError, optionInvalid, subjectInvalid } from '../errors.ts'
import { mapped, type Sliced } from '../slices.ts'
import type { BucketName, Charge, ChargeKind } from '../store/store.ts'
import { requireKnownFacts, type Subject } from '../subject.ts'
import { addressReader, type CompiledLimit, type CompiledRule, type CompileOptions, compiling } from './compile.ts'
import { type FactReader, textOf } from './condition.ts'
import { coversPath, type Mismatch, mismatchOf, type RuleExplanation } from './explain.ts'
import { RuleIndex, rulesAt, type Spot } from './match.ts'
import { limitInWords } from './most-per-window.ts'
import { parsing } from './parse.ts'
import { emptyList, Plan, RuleCharge } from './plan.ts'
import { ATTRIBUTE, FACTS, type Rule } from './rule.ts'

export const COST_MAX = 1_000_000_000
/** Longer facts are no names of anybody: refused before they are hashed, stored or logged. */
export const FACT_LENGTH_MAX = 1024

type Key = string | Readonly<Record<string, string>>

/** Rules that are out of force for now: these, or all of them. */
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
  readonly #nothing: Plan
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
    this.#nothing = new Plan([], [], undefined, version)
  }

  /**
   * From rules in any spelling. Throws RULE_INVALID. Rules that say what they said in `previous`, a set with the same
   * options, are taken over from it: they cost next to nothing, and what nodes hold on lease of them stays good.
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

  /** The rule of this set that says the same. */
  #unchanged(rule: Rule): Rule | undefined {
    const before = this.rule(rule.rule_id)
    if (before === undefined || before === rule) return before
    if (before.version !== rule.version || before.updated_at !== rule.updated_at) return undefined
    return JSON.stringify(before) === JSON.stringify(rule) ? before : undefined
  }

  /** What a request has to pay, and for which limits. A permit is named by the request. */
  plan(given: Subject, requestId: string | (() => string), suspended: Suspended = NOTHING_SUSPENDED): Plan {
    const { version } = this
    if (typeof given !== 'object' || given === null) throw subjectInvalid('subject', given, 'give an object of facts')
    requireKnownFacts(given)
    const cost = costOf(given)
    const spot = this.#index.spotOf(textOf('path', given.path) ?? '/')
    const subject = withPath(given, spot)
    const rules = this.#match(subject, spot, suspended)
    if (rules.length === 0) return this.#nothing
    const [first] = rules
    const sole = rules.length === 1 && first?.sole ? this.#planSole(first, first.sole, subject, cost) : undefined
    if (sole !== undefined) return sole
    const limits = emptyList<CompiledLimit>()
    const charges = emptyList<Charge>()
    let permits = false
    let bar: CompiledLimit | undefined
    for (const rule of rules) {
      const bars = this.#charge(rule, subject, cost, limits, charges)
      if (bars !== undefined && (bar === undefined || outranks(rule, bar.rule))) bar = bars
      if (rule.permits) permits = true
    }
    if (bar !== undefined) return new Plan([barCharge(bar)], [bar], undefined, version)
    const op = permits ? { id: typeof requestId === 'string' ? requestId : requestId() } : undefined
    return new Plan(charges, limits, op, version)
  }

  /** The short way of most requests: one rule of one limit, and the facts of its key. Undefined: take the long way. */
  #planSole(rule: CompiledRule, sole: CompiledLimit, subject: Subject, cost: number): Plan | undefined {
    const owner = rule.owner(subject)
    const detail = rule.detail === undefined ? '' : rule.detail(subject)
    if (owner === undefined || owner.length > FACT_LENGTH_MAX) return undefined
    if (detail === undefined || detail.length > FACT_LENGTH_MAX) return undefined
    const units = unitsOf(rule, subject, cost)
    const charge = new RuleCharge(sole.limit, owner, detail, units, kindOf(rule))
    return new Plan([charge], rule.limits, undefined, this.version)
  }

  /** Every bucket that a rule can have for one key. */
  bucketsOf(ruleId: string, key: Key): BucketName[] {
    const rule = this.#compiled.find(({ id }) => id === ruleId)
    if (rule === undefined) throw optionInvalid('ruleId', ruleId, 'give the id of a rule in force')
    const facts: Readonly<Record<string, string>> = typeof key === 'string' ? { [rule.rule.scope[0] ?? '']: key } : key
    const given = subjectOfKey(facts)
    const subject = withPath(given, this.#index.spotOf(given.path ?? '/'))
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

  /** The limit that has an id; undefined when its rule is gone, or is for another layer. */
  limitOf(id: string): Limit | undefined {
    this.#limits ??= new Map(this.#compiled.flatMap(limitsOf).map((limit) => [limit.id, limit]))
    return this.#limits.get(id)
  }

  /** What each rule makes of a request, and why: in the order of the rules, at the price of looking at every one. */
  *explain(given: Subject, suspended: Suspended): Sliced<RuleExplanation[]> {
    const spot = this.#index.spotOf(textOf('path', given.path) ?? '/')
    const subject = withPath(given, spot)
    const readings = [spot, ...spot.others].map(({ path }) => path)
    const nowUs = this.#clock.nowUs()
    const compiled = new Map(this.#compiled.map((rule) => [rule.id, rule]))
    const why = new Map<string, Mismatch>()
    for (const rule of this.rules) {
      const id = rule.rule_id
      const mismatch = mismatchOf(rule, compiled.get(id), subject, readings, nowUs)
      if (mismatch !== undefined) why.set(id, mismatch)
      else if (isSuspended(suspended, id)) why.set(id, { reason: 'suspended', detail: 'the kill switch is on for it' })
      yield
    }
    const matched = [...compiled.values()].filter(({ id }) => !why.has(id))
    this.#explainCharges(subject, explainGroups(matched, readings, why), why)
    return this.rules.map(({ rule_id: ruleId }) => {
      return { ruleId, ...(why.get(ruleId) ?? applies(compiled.get(ruleId), subject)) }
    })
  }

  /** Of the rules that apply to a request, says of those that do not charge it why they do not. */
  #explainCharges(subject: Subject, chosen: ReadonlySet<CompiledRule>, why: Map<string, Mismatch>): void {
    let bar: CompiledRule | undefined
    for (const rule of chosen) {
      const charges: Charge[] = []
      const bars = this.#charge(rule, subject, costOf(subject), [], charges)
      if (bars !== undefined && (bar === undefined || outranks(rule, bar))) bar = rule
      if (bars === undefined && charges.length === 0) why.set(rule.id, chargesNothing(rule, subject))
    }
    for (const { id } of chosen) {
      if (bar === undefined || id === bar.id || why.has(id)) continue
      why.set(id, { reason: 'barred', detail: `${bar.id} refuses whatever the buckets hold, so nothing else is asked` })
    }
  }

  #match(subject: Subject, spot: Spot, suspended: Suspended): readonly CompiledRule[] {
    const matched = rulesAt(spot, subject, textOf('method', subject.method) ?? '')
    const live = this.#expiring ? unexpired(matched, this.#clock.nowUs()) : matched
    const left = suspended === NOTHING_SUSPENDED ? live : live.filter(({ id }) => !isSuspended(suspended, id))
    const chosen = this.#grouped ? onePerGroup(left) : left
    if (spot.others.length === 0) return chosen
    // Each reading chooses for itself: what can be read as an exempt path is exempt only if it is so in each.
    return [...new Set([chosen, ...spot.others.map((other) => this.#match(subject, other, suspended))].flat())]
  }

  /** Adds the charges of one rule, or returns the limit of 0 by which it refuses whatever its buckets hold. */
  #charge(
    rule: CompiledRule,
    subject: Subject,
    cost: number,
    limits: CompiledLimit[],
    charges: Charge[],
  ): CompiledLimit | undefined {
    let owner = rule.owner(subject)
    const detail = rule.detail === undefined ? '' : rule.detail(subject)
    const asked =
      rule.limitsByPlan.size === 0 ? rule.limits : (rule.limitsByPlan.get(subject.plan ?? '') ?? rule.limits)
    const missing = owner === undefined || detail === undefined
    if (missing && (rule.onMissing === 'skip' || asked.length === 0)) return undefined
    if (missing) owner = rule.onMissing === 'by_ip' ? this.#address(subject) : undefined
    if (owner === undefined) return refuse(rule, limits, charges)
    if (owner.length > FACT_LENGTH_MAX) throw tooLong(rule, owner)
    if (detail !== undefined && detail.length > FACT_LENGTH_MAX) throw tooLong(rule, detail)
    const units = unitsOf(rule, subject, cost)
    const kind = kindOf(rule)
    for (const one of asked) {
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

/** Those that apply, of the rules that are for a request: each reading of its path chooses one of a group. */
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
    why.set(id, { reason: 'group', detail: `of the group ${group}, ${better?.id} goes first` })
  }
  return chosen
}

/** Which limits of a rule a request is asked for. */
function askedOf(rule: CompiledRule, { plan = '' }: Subject): readonly CompiledLimit[] {
  return rule.limitsByPlan.get(plan) ?? rule.limits
}

function applies(rule: CompiledRule | undefined, subject: Subject): Mismatch {
  const limits = rule === undefined ? [] : askedOf(rule, subject).map(({ limit }) => limitInWords(limit))
  return { reason: null, detail: ['it applies', limits.join('; ')].filter((text) => text !== '').join(': ') }
}

/** Why a rule that is for a request asks nothing of it. */
function chargesNothing(rule: CompiledRule, subject: Subject): Mismatch {
  const asked = askedOf(rule, subject)
  if (asked.length === 0) return { reason: 'unlimited', detail: 'it sets no limit for this request' }
  const fact = rule.owner(subject) === undefined ? (rule.rule.scope[0] ?? '') : rule.rule.scope.slice(1).join(', ')
  return { reason: 'missing_fact', fact, detail: `the request has no ${fact}, and on_missing is ${rule.onMissing}` }
}

function unexpired(rules: readonly CompiledRule[], nowUs: number): CompiledRule[] {
  return rules.filter(({ expiresUs }) => expiresUs > nowUs)
}

/**
 * Of the rules of one group only the one with the highest priority applies. Rules in shadow are a group of their own:
 * trying one out must not put the enforced one out of force.
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

/** For a key whose fact is missing where that is no excuse. In shadow it is an outcome like any other. */
function refuse(rule: CompiledRule, limits: CompiledLimit[], charges: Charge[]): CompiledLimit | undefined {
  if (!rule.shadow || rule.refusal === undefined) return rule.refusal
  limits.push(rule.refusal)
  charges.push(barCharge(rule.refusal))
  return undefined
}

/** Nobody can pass a limit of 0, so it is the same charge for everybody. */
function barCharge({ limit, rule }: CompiledLimit): Charge {
  return new RuleCharge(limit, '', '', 1, kindOf(rule))
}

/** The path in its one form: neither rules nor keys see how it was written. */
function withPath(subject: Subject, { path }: Spot): Subject {
  return !subject.path || subject.path === path ? subject : { ...subject, path }
}

function kindOf({ shadow }: CompiledRule): ChargeKind {
  return shadow ? 'shadow' : 'enforce'
}

/** What a request that costs `cost` is worth to a rule. */
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

/** A request without the attribute that carries its cost is worth 1. */
function attributeCost(text: string | undefined, { rule: { cost } }: CompiledRule): number {
  if (text === undefined) return 1
  const name = String(cost)
  return checkedCost(name.startsWith(ATTRIBUTE) ? name : `${ATTRIBUTE}${name}`, Number(text), text)
}

/** A subject that has just the facts of a key. */
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
