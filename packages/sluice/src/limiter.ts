// The way of a request: match → charges → take → combine → decision. A refusal is a value; an exception means bad input
// or a broken store. A check sees one rule set as a whole, and a rule set that is refused changes nothing.

import type { Limit } from './algorithms/limit.ts'
import { type Clock, systemClock, wallClock } from './clock.ts'
import { Decided, type Decider, type Decision, NOTHING_TO_CHARGE } from './decision.ts'
import { LimiterError, optionInvalid } from './errors.ts'
import { type HotKey, HotKeys } from './hot-keys/hot-keys.ts'
import { IPV6_PREFIX_DEFAULT } from './http/address.ts'
import { type KnownFields, requireKnown, requireStore } from './known-fields.ts'
import { isPromised, type Maybe } from './maybe.ts'
import { givesOf, isPermit, lastsUs, type Receipt, type Redeemed, receiptOf, wholeId } from './receipt.ts'
import type { RuleExplanation } from './rules/explain.ts'
import type { Plan } from './rules/plan.ts'
import type { Rule } from './rules/rule.ts'
import type { RulesInput } from './rules/rule-input.ts'
import { NOTHING_SUSPENDED, RuleSet, type Suspended } from './rules/rule-set.ts'
import { atOnce, inSlices, type Sliced } from './slices.ts'
import { memoryStore } from './store/memory.ts'
import type { Give, Given, Once, Store, Taken } from './store/store.ts'
import { StoreFullError } from './store/store-full.ts'
import type { Subject } from './subject.ts'
import { isOneOfSeveral, warnOnce } from './warning.ts'

export type LimiterOptions = {
  /** Rules in any spelling. Data of type unknown, from a file for example: `parseRules(data)`. */
  readonly rules: RulesInput
  /** Where buckets live: in this process unless told otherwise. */
  readonly store?: Store | undefined
  /** Version of the rule set; by default the first is 1 and each `setRules` adds 1. */
  readonly version?: number | undefined
  /** Where this limiter stands. With it, rules whose `enforce_at` names the other layer are left out. */
  readonly layer?: 'edge' | 'service' | undefined
  /** Addresses of one IPv6 network count as one client. */
  readonly ipv6Prefix?: number | undefined
  /** For `expires_at` and the rates of hot keys only: the time of buckets is the store's. */
  readonly clock?: Clock | undefined
}

export interface Limiter {
  /** Decides one request. `requestId` names its permits: the same id again renews them. */
  check(subject: Subject, requestId?: string): Promise<Decision>
  /** The same without waiting, or undefined when the store must be asked. */
  checkSync(subject: Subject, requestId?: string): Decision | undefined
  /**
   * The same at once where that can be, and promised where the store must be asked: for hot paths. Bad input is thrown
   * at once.
   */
  decide(subject: Subject, requestId?: string): Maybe<Decision>
  /** What a check would answer; consumes nothing. */
  peek(subject: Subject): Promise<Decision>
  /** What a check would answer, and what every rule makes of the request; consumes nothing. */
  explain(subject: Subject): Promise<Explanation>
  /**
   * Gives back what an admitted request took, or `units` of it at each limit, and releases its permits. Works once.
   * Rejects with STORE_UNAVAILABLE when the store did not confirm it: then it is safe to try again.
   */
  give(decision: Decision, units?: number): Promise<void>
  /** Releases the permits of a request that is done; what it consumed stays consumed. Rejects as `give` does. */
  release(decision: Decision): Promise<void>
  /** What an admitted request took, as plain data: for `redeem`, perhaps in another process. */
  receipt(decision: Decision): Receipt
  /** The same as `give` by a receipt, in any process with the same rules and store; 0 units: as `release`. */
  redeem(receipt: Receipt, units?: number): Promise<Redeemed>
  /** Keeps the permits of a request that takes long; false when they are given back, or lost and not to be had. */
  renew(decision: Decision): Promise<boolean>
  /** Forgets the buckets of one key: its text, or its facts by name for a composite key. */
  reset(ruleId: string, key: string | Readonly<Record<string, string>>): Promise<void>
  /** Replaces all rules at once; throws RULE_INVALID and keeps the present ones if one of them is wrong. */
  setRules(rules: RulesInput, version?: number): void
  /**
   * The same in two steps, for large sets: this one takes its time, and checks go on meanwhile. Rejects with
   * RULE_INVALID if one of them is wrong. Nothing changes before `enforce` is called on what it resolves to.
   */
  prepareRules(rules: RulesInput, version?: number): Promise<PreparedRules>
  /** Puts rules out of force at once, or all of them, until it is called again; an empty list brings all back. */
  suspend(ruleIds: readonly string[] | 'everything'): void
  /** The buckets that get the most checks of this limiter at present, the hottest first: estimates, from samples. */
  hotKeys(): readonly HotKey[]
  readonly rules: readonly Rule[]
  readonly version: number
  rule(ruleId: string): Rule | undefined
  close(): Promise<void>
}

export type Explanation = {
  readonly decision: Decision
  /** One per rule, in the order of the rules. */
  readonly rules: readonly RuleExplanation[]
}

/** A rule set that is good, and not in force yet. */
export type PreparedRules = {
  readonly rules: readonly Rule[]
  enforce(): void
}

export function createLimiter(options: LimiterOptions): Limiter {
  return new RuleLimiter(options)
}

class RuleLimiter implements Limiter, Decider {
  last: Decision | undefined
  readonly #store: Store
  readonly #options: LimiterOptions
  readonly #hotKeys: HotKeys
  #rules: RuleSet
  #suspended: Suspended = NOTHING_SUSPENDED
  #closed = false
  #checks = 0
  readonly #idPrefix = randomPrefix()
  readonly #nextId = (): string => this.newId()
  /** Of decisions that were given back, or have a receipt: how the store remembers that. */
  readonly #onces = new WeakMap<Decided, Once>()

  constructor(options: LimiterOptions) {
    checkOptions(options)
    this.#options = options
    this.#store = options.store ?? ownMemory()
    this.#hotKeys = new HotKeys(options.clock ?? systemClock, Math.random)
    this.#rules = atOnce(this.#compile(options.rules, options.version ?? 1))
  }

  get rules(): readonly Rule[] {
    return this.#rules.rules
  }

  get version(): number {
    return this.#rules.version
  }

  rule(ruleId: string): Rule | undefined {
    return this.#rules.rule(ruleId)
  }

  wallAheadUs(): number {
    return this.#store.wallAheadUs?.() ?? 0
  }

  newId(): string {
    this.#checks += 1
    return `${this.#idPrefix}${this.#checks.toString(36)}`
  }

  async check(subject: Subject, requestId?: string): Promise<Decision> {
    const plan = this.#plan(subject, requestId)
    const taken = this.#known(plan) ?? (await this.#store.take(plan))
    return this.#decided(plan, taken, requestId)
  }

  checkSync(subject: Subject, requestId?: string): Decision | undefined {
    const plan = this.#plan(subject, requestId)
    const taken = this.#known(plan) ?? this.#store.takeSync?.(plan)
    return taken && this.#decided(plan, taken, requestId)
  }

  decide(subject: Subject, requestId?: string): Maybe<Decision> {
    const plan = this.#plan(subject, requestId)
    const taken = this.#known(plan) ?? this.#store.take(plan)
    // Not `andThen`: what a closure refers to is allocated by every call of this, with or without a promise.
    return isPromised(taken) ? this.#decidedLater(plan, taken, requestId) : this.#decided(plan, taken, requestId)
  }

  async peek(subject: Subject): Promise<Decision> {
    const plan = this.#plan(subject, undefined)
    const taken = this.#known(plan) ?? (await this.#store.peek(plan.charges, true))
    return new Decided(this, plan, taken, plan.op?.id)
  }

  async explain(subject: Subject): Promise<Explanation> {
    const [rules, suspended] = [this.#rules, this.#suspended] // while the store is asked, others may come into force
    const decision = await this.peek(subject)
    return { decision, rules: await inSlices(rules.explain(subject, suspended)) }
  }

  async give(decision: Decision, units?: number): Promise<void> {
    checkUnits(units)
    this.#requireOpen()
    const decided = ours(decision)
    const gives = decided.takeBack(units, this.#onces.has(decided))
    if (gives.length === 0) return
    // Remembered only for as long as a give that was not confirmed may be repeated: each takes a key in Redis.
    const lasts = () => Math.min(lastsUs(gives), ageUs(gives, this.#nowUs()) + REPEAT_US)
    await this.#giveBack(decided, gives, this.#onceOf(decided, lasts))
  }

  async release(decision: Decision): Promise<void> {
    this.#requireOpen()
    const decided = ours(decision)
    const gives = decided.release()
    if (gives.length > 0) await this.#giveBack(decided, gives, undefined)
  }

  receipt(decision: Decision): Receipt {
    const decided = ours(decision)
    const once = this.#onceOf(decided, () => lastsUs(decided.taken))
    return receiptOf(once, this.#idPrefix, decided.op?.id, decided.taken)
  }

  async redeem(receipt: Receipt, units?: number): Promise<Redeemed> {
    if (units !== 0) checkUnits(units)
    this.#requireOpen()
    const { id, op, lastsUs, items } = receipt
    const { gives, leftOut } = givesOf(receipt, this.#idPrefix, (limitId) => this.#limitOf(limitId))
    const permits = gives.filter(({ limit }) => isPermit(limit))
    if (units === 0) {
      if (permits.length > 0) await this.#store.give(permits, op)
      return { outcome: 'given', leftOut }
    }
    if (gives.length === 0) return { outcome: items.length === 0 ? 'given' : 'outdated', leftOut }
    const some = gives.map((give) => ({ ...give, units: Math.min(give.units, units ?? give.units) }))
    const outcome = await this.#giveOnce(some, op, { id, lastsUs })
    // A permit may have been renewed long after its booking.
    if (outcome === 'expired' && permits.length > 0) await this.#store.give(permits, op)
    return { outcome, leftOut }
  }

  async renew(decision: Decision): Promise<boolean> {
    this.#requireOpen()
    const decided = ours(decision)
    const charges = decided.permits()
    if (charges === undefined) return false
    return charges.length === 0 || (await this.#store.take({ charges, op: decided.op })).granted
  }

  async reset(ruleId: string, key: string | Readonly<Record<string, string>>): Promise<void> {
    this.#requireOpen()
    for (const bucket of this.#rules.bucketsOf(ruleId, key)) await this.#store.reset(bucket)
  }

  setRules(rules: RulesInput, version: number = this.version + 1): void {
    this.#rules = atOnce(this.#compile(rules, version))
  }

  async prepareRules(rules: RulesInput, version: number = this.version + 1): Promise<PreparedRules> {
    const prepared = await inSlices(this.#compile(rules, version))
    return {
      rules: prepared.rules,
      enforce: () => {
        this.#rules = prepared
      },
    }
  }

  suspend(ruleIds: readonly string[] | 'everything'): void {
    const some = ruleIds === 'everything' ? ruleIds : new Set(ruleIds)
    this.#suspended = ruleIds.length === 0 ? NOTHING_SUSPENDED : some
  }

  hotKeys(): readonly HotKey[] {
    return this.#hotKeys.list()
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#store.close()
  }

  #compile(rules: RulesInput, version: number): Sliced<RuleSet> {
    const { layer, ipv6Prefix = IPV6_PREFIX_DEFAULT, clock = wallClock } = this.#options
    const refusesSpread = this.#store.refusesSpread && ((limit: Limit) => this.#store.refusesSpread?.(limit))
    const options = { layer, ipv6Prefix, stores: this.#store.named ?? [], refusesSpread }
    return RuleSet.of(rules, version, options, clock, this.#rules)
  }

  #plan(subject: Subject, requestId: string | undefined): Plan {
    this.#requireOpen()
    return this.#rules.plan(subject, requestId ?? this.#nextId, this.#suspended)
  }

  async #giveBack(decided: Decided, gives: readonly Give[], once: Once | undefined): Promise<void> {
    try {
      await this.#giveOnce(gives, decided.op?.id, once)
    } catch (error) {
      decided.notReturned()
      throw error
    }
  }

  /** A store without room to remember a give still releases its permits: to do that twice changes nothing. */
  async #giveOnce(gives: readonly Give[], opId: string | undefined, once: Once | undefined): Promise<Given> {
    try {
      return (await this.#store.give(gives, opId, once)) ?? 'given'
    } catch (error) {
      const permits = gives.filter(({ limit }) => isPermit(limit))
      if (error instanceof StoreFullError && permits.length > 0) await this.#store.give(permits, opId)
      throw error
    }
  }

  #onceOf(decided: Decided, lasts: () => number): Once {
    const known = this.#onces.get(decided)
    if (known !== undefined) return known
    const once = { id: this.newId(), lastsUs: lasts() }
    this.#onces.set(decided, once)
    return once
  }

  #nowUs(): number {
    return (this.#options.clock ?? wallClock).nowUs()
  }

  /** The limit in force that has an id, or a part of it that has. */
  #limitOf(id: string): Limit | undefined {
    const whole = this.#rules.limitOf(wholeId(id))
    if (whole === undefined) return undefined
    if (whole.shards !== undefined) return whole.shards.find((part) => part.id === id)
    return whole.spread === undefined ? whole : this.#store.partOf?.(whole, id)
  }

  #requireOpen(): void {
    if (this.#closed) throw new LimiterError('CLOSED', 'the limiter was closed: create a new one')
  }

  /** Answers that need no store: nothing to charge, or a limit that nobody can pass. */
  #known({ charges, limits }: Plan): Taken | undefined {
    if (charges.length === 0) return NOTHING_TO_CHARGE
    const barred = limits.length === 1 && charges[0]?.kind === 'enforce' && limits[0]?.limit.units === 0
    return barred ? BARRED : undefined
  }

  async #decidedLater(plan: Plan, taken: Promise<Taken>, requestId: string | undefined): Promise<Decision> {
    return this.#decided(plan, await taken, requestId)
  }

  #decided(plan: Plan, taken: Taken, requestId: string | undefined): Decision {
    this.#hotKeys.checked(plan)
    const decision = new Decided(this, plan, taken, requestId ?? plan.op?.id)
    this.last = decision
    return decision
  }
}

/** How long after a give that the store did not confirm it may be repeated. */
const REPEAT_US = 600_000_000

/** Since the oldest of the units was booked, by a clock of this node. */
function ageUs(gives: readonly Give[], nowUs: number): number {
  return Math.max(0, nowUs - Math.min(...gives.map(({ bookedUs }) => bookedUs)))
}

const BARRED: Taken = {
  granted: false,
  nowUs: 0,
  grants: [
    { units: 0, short: 'never', remaining: 0, resetAfterUs: 0, retryAfterUs: Number.POSITIVE_INFINITY, delayUs: 0 },
  ],
  source: 'local',
  replayed: false,
}

/** Request ids are unique over processes by their prefix, and within one by a count. */
function randomPrefix(): string {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2))
  return `${high.toString(36)}${low.toString(36)}-`
}

function ownMemory(): Store {
  if (isOneOfSeveral()) warnOnce('SLUICE_MEMORY_PER_PROCESS')
  return memoryStore()
}

const OPTIONS: KnownFields<LimiterOptions> = {
  rules: true,
  store: true,
  version: true,
  layer: true,
  ipv6Prefix: true,
  clock: true,
}

/** A layer that is no layer would leave out rules, and a prefix that is none would merge clients, both in silence. */
function checkOptions(options: LimiterOptions): void {
  requireKnown(options, OPTIONS, '{ rules: […] }')
  const { layer, ipv6Prefix = IPV6_PREFIX_DEFAULT, store, version = 1, clock = systemClock } = options
  requireStore('store', store)
  if (layer !== undefined && layer !== 'edge' && layer !== 'service') {
    throw optionInvalid('layer', layer, 'use "edge" or "service", or leave it out')
  }
  if (!Number.isInteger(ipv6Prefix) || ipv6Prefix < 1 || ipv6Prefix > 128) {
    throw optionInvalid('ipv6Prefix', ipv6Prefix, 'give a number of bits from 1 to 128')
  }
  if (!Number.isSafeInteger(version) || version < 0) {
    throw optionInvalid('version', version, 'give a whole number of at least 0')
  }
  if (typeof clock?.nowUs !== 'function') throw optionInvalid('clock', clock, 'pass an object with nowUs()')
}

function checkUnits(units: number | undefined): void {
  if (units === undefined || (Number.isSafeInteger(units) && units > 0)) return
  throw optionInvalid('units', units, 'give a whole number above 0')
}

function ours(decision: Decision): Decided {
  if (decision instanceof Decided) return decision
  throw optionInvalid('decision', decision, 'pass the object that check returned: a copy does not know what it took')
}
