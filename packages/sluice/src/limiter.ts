// Limiter: match → charges → take → combine → decision. A refusal is a value; an exception means bad input or a failed
// store. Each check sees one complete rule set; a rejected rule set changes nothing.

import type { Limit } from './algorithms/limit.ts'
import { hasPermits } from './algorithms/traits.ts'
import { IPV6_PREFIX_DEFAULT } from './canonical/address.ts'
import { type Clock, systemClock, wallClock } from './clock.ts'
import { type Decision, type DecisionContext, LimiterDecision, NOTHING_TO_CHARGE } from './decision.ts'
import { LimiterError, optionInvalid } from './errors.ts'
import { type HotKey, HotKeys } from './hot-keys/hot-keys.ts'
import { type KnownFields, requireKnown, requireStore } from './known-fields.ts'
import { isPromise, type MaybePromise } from './maybe-promise.ts'
import { givesOf, type Receipt, type Redeemed, receiptOf, receiptTtlUs, wholeId } from './receipt.ts'
import type { ChargeSet } from './rules/charge-set.ts'
import type { RuleExplanation } from './rules/explain.ts'
import type { Rule } from './rules/rule.ts'
import type { RulesInput } from './rules/rule-input.ts'
import { NOTHING_SUSPENDED, RuleSet, type Suspended } from './rules/rule-set.ts'
import { inSlices, runSync, type Sliced } from './slices.ts'
import { memoryStore } from './store/memory.ts'
import type { Give, GiveResult, IdempotencyKey, Store, Taken } from './store/store.ts'
import { StoreFullError } from './store/store-full-error.ts'
import type { Subject } from './subject.ts'
import { isOneOfSeveralProcesses, warnOnce } from './warning.ts'

export type LimiterOptions = {
  /** Rules, in any supported spelling. For data of type unknown, such as a parsed file: `parseRules(data)`. */
  readonly rules: RulesInput
  /** Store of the buckets; the memory of this process by default. */
  readonly store?: Store | undefined
  /** Version of the rule set; by default the first is 1 and each `setRules` adds 1. */
  readonly version?: number | undefined
  /** Layer of this limiter: rules whose `enforce_at` names the other layer are skipped. */
  readonly layer?: 'edge' | 'service' | undefined
  /** Prefix length of an IPv6 client: all addresses of one network share a bucket. Default: 64. */
  readonly ipv6Prefix?: number | undefined
  /** Used only for `expires_at` and hot-key rates; buckets use store time. */
  readonly clock?: Clock | undefined
}

export interface Limiter {
  /** Checks one request. `requestId` names its permits: the same id renews them. */
  check(subject: Subject, requestId?: string): Promise<Decision>
  /** Synchronous check; undefined if it needs a round trip. */
  checkSync(subject: Subject, requestId?: string): Decision | undefined
  /**
   * Check for hot paths: returns the decision synchronously unless it needs a round trip. Throws synchronously on bad
   * input.
   */
  decide(subject: Subject, requestId?: string): MaybePromise<Decision>
  /** Decision that a check would return; consumes nothing. */
  peek(subject: Subject): Promise<Decision>
  /** Like `peek`, with the result of every rule. */
  explain(subject: Subject): Promise<Explanation>
  /**
   * Refunds what an admitted request took, or `units` of it per limit, and releases its permits. Works once. Rejects
   * with STORE_UNAVAILABLE if the store did not confirm; it is then safe to retry.
   */
  give(decision: Decision, units?: number): Promise<void>
  /** Releases the permits of a finished request; consumed units stay consumed. Rejects like `give`. */
  release(decision: Decision): Promise<void>
  /** Receipt of an admitted request, as plain data, for `redeem` in any process. */
  receipt(decision: Decision): Receipt
  /** `give` by receipt, in any process with the same rules and store; with 0 units: `release`. */
  redeem(receipt: Receipt, units?: number): Promise<Redeemed>
  /** Renews the permits of a long request; false if they were released, or expired and are not available. */
  renew(decision: Decision): Promise<boolean>
  /** Resets the buckets of one key, given as a string, or as facts by name if the key is composite. */
  reset(ruleId: string, key: string | Readonly<Record<string, string>>): Promise<void>
  /** Replaces all rules atomically; throws RULE_INVALID and keeps the active ones if one is invalid. */
  setRules(rules: RulesInput, version?: number): void
  /**
   * Like `setRules` in two steps, for large sets, without blocking checks. Rejects with RULE_INVALID if a rule is
   * invalid. Call `enforce` on the result to activate the rules.
   */
  prepareRules(rules: RulesInput, version?: number): Promise<PreparedRules>
  /** Kill switch: disables these rules, or all, until the next call; an empty list enables all. */
  suspend(ruleIds: readonly string[] | 'everything'): void
  /** Most frequently checked buckets, hottest first; estimated from samples. */
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

/** A valid rule set that is not active yet. */
export type PreparedRules = {
  readonly rules: readonly Rule[]
  enforce(): void
}

export function createLimiter(options: LimiterOptions): Limiter {
  return new RuleLimiter(options)
}

class RuleLimiter implements Limiter, DecisionContext {
  readonly #store: Store
  readonly #options: LimiterOptions
  readonly #hotKeys: HotKeys
  #rules: RuleSet
  #suspended: Suspended = NOTHING_SUSPENDED
  #closed = false
  #checks = 0
  readonly #idPrefix = randomPrefix()
  readonly #nextId = (): string => this.newId()
  /** Idempotency keys of decisions that were refunded or have a receipt. */
  readonly #idempotencyKeys = new WeakMap<LimiterDecision, IdempotencyKey>()

  constructor(options: LimiterOptions) {
    checkOptions(options)
    this.#options = options
    this.#store = options.store ?? defaultStore()
    this.#hotKeys = new HotKeys(options.clock ?? systemClock, Math.random)
    this.#rules = runSync(this.#compile(options.rules, options.version ?? 1))
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
    const chargeSet = this.#chargesFor(subject, requestId)
    const taken = this.#withoutStore(chargeSet) ?? (await this.#store.take(chargeSet))
    return this.#decide(chargeSet, taken, requestId)
  }

  checkSync(subject: Subject, requestId?: string): Decision | undefined {
    const chargeSet = this.#chargesFor(subject, requestId)
    const taken = this.#withoutStore(chargeSet) ?? this.#store.takeSync?.(chargeSet)
    return taken && this.#decide(chargeSet, taken, requestId)
  }

  decide(subject: Subject, requestId?: string): MaybePromise<Decision> {
    const chargeSet = this.#chargesFor(subject, requestId)
    const taken = this.#withoutStore(chargeSet) ?? this.#store.take(chargeSet)
    return isPromise(taken) ? this.#decideLater(chargeSet, taken, requestId) : this.#decide(chargeSet, taken, requestId)
  }

  async peek(subject: Subject): Promise<Decision> {
    const chargeSet = this.#chargesFor(subject, undefined)
    const taken = this.#withoutStore(chargeSet) ?? (await this.#store.peek(chargeSet.charges, true))
    return new LimiterDecision(this, chargeSet, taken, chargeSet.op?.id)
  }

  async explain(subject: Subject): Promise<Explanation> {
    const [rules, suspended] = [this.#rules, this.#suspended] // the rules may change during the peek
    const decision = await this.peek(subject)
    return { decision, rules: await inSlices(rules.explain(subject, suspended)) }
  }

  async give(decision: Decision, units?: number): Promise<void> {
    checkUnits(units)
    this.#requireOpen()
    const decided = requireOwn(decision)
    const gives = decided.refundGives(units, this.#idempotencyKeys.has(decided))
    if (gives.length === 0) return
    // Kept only while an unconfirmed give may be retried: each takes a key in Redis.
    const ttlUs = () => Math.min(receiptTtlUs(gives), ageUs(gives, this.#nowUs()) + RETRY_US)
    await this.#giveBack(decided, gives, this.#idempotencyKeyOf(decided, ttlUs))
  }

  async release(decision: Decision): Promise<void> {
    this.#requireOpen()
    const decided = requireOwn(decision)
    const gives = decided.releaseGives()
    if (gives.length > 0) await this.#giveBack(decided, gives, undefined)
  }

  receipt(decision: Decision): Receipt {
    const decided = requireOwn(decision)
    const key = this.#idempotencyKeyOf(decided, () => receiptTtlUs(decided.allGives))
    return receiptOf(key, this.#idPrefix, decided.op?.id, decided.allGives)
  }

  async redeem(receipt: Receipt, units?: number): Promise<Redeemed> {
    if (units !== 0) checkUnits(units)
    this.#requireOpen()
    const { id, op, ttlUs, items } = receipt
    const { gives, leftOut } = givesOf(receipt, this.#idPrefix, (limitId) => this.#limitOf(limitId))
    const permits = gives.filter(({ limit }) => hasPermits(limit))
    if (units === 0) {
      if (permits.length > 0) await this.#store.give(permits, op)
      return { outcome: 'given', leftOut }
    }
    if (gives.length === 0) return { outcome: items.length === 0 ? 'given' : 'outdated', leftOut }
    const capped = gives.map((give) => ({ ...give, units: Math.min(give.units, units ?? give.units) }))
    const outcome = await this.#giveOnce(capped, op, { id, ttlUs })
    // A permit may have been renewed long after its booking.
    if (outcome === 'expired' && permits.length > 0) await this.#store.give(permits, op)
    return { outcome, leftOut }
  }

  async renew(decision: Decision): Promise<boolean> {
    this.#requireOpen()
    const decided = requireOwn(decision)
    const charges = decided.permitCharges()
    if (charges === undefined) return false
    return charges.length === 0 || (await this.#store.take({ charges, op: decided.op })).granted
  }

  async reset(ruleId: string, key: string | Readonly<Record<string, string>>): Promise<void> {
    this.#requireOpen()
    for (const bucket of this.#rules.bucketsOf(ruleId, key)) await this.#store.reset(bucket)
  }

  setRules(rules: RulesInput, version: number = this.version + 1): void {
    this.#rules = runSync(this.#compile(rules, version))
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

  #chargesFor(subject: Subject, requestId: string | undefined): ChargeSet {
    this.#requireOpen()
    return this.#rules.chargesFor(subject, requestId ?? this.#nextId, this.#suspended)
  }

  async #giveBack(decided: LimiterDecision, gives: readonly Give[], key: IdempotencyKey | undefined): Promise<void> {
    try {
      await this.#giveOnce(gives, decided.op?.id, key)
    } catch (error) {
      decided.giveFailed()
      throw error
    }
  }

  /** If the store is too full for an idempotency key, releases only permits: releasing twice is harmless. */
  async #giveOnce(gives: readonly Give[], opId: string | undefined, key?: IdempotencyKey): Promise<GiveResult> {
    try {
      return (await this.#store.give(gives, opId, key)) ?? 'given'
    } catch (error) {
      const permits = gives.filter(({ limit }) => hasPermits(limit))
      if (error instanceof StoreFullError && permits.length > 0) await this.#store.give(permits, opId)
      throw error
    }
  }

  #idempotencyKeyOf(decided: LimiterDecision, ttlUs: () => number): IdempotencyKey {
    const known = this.#idempotencyKeys.get(decided)
    if (known !== undefined) return known
    const key = { id: this.newId(), ttlUs: ttlUs() }
    this.#idempotencyKeys.set(decided, key)
    return key
  }

  #nowUs(): number {
    return (this.#options.clock ?? wallClock).nowUs()
  }

  /** The active limit or sublimit with this id. */
  #limitOf(id: string): Limit | undefined {
    const whole = this.#rules.limitOf(wholeId(id))
    if (whole === undefined) return undefined
    if (whole.shards !== undefined) return whole.shards.find((shard) => shard.id === id)
    return whole.spread === undefined ? whole : this.#store.sublimit?.(whole, id)
  }

  #requireOpen(): void {
    if (this.#closed) throw new LimiterError('CLOSED', 'the limiter was closed: create a new one')
  }

  /** Results that need no store: nothing to charge, or a single limit of 0. */
  #withoutStore({ charges, limits }: ChargeSet): Taken | undefined {
    if (charges.length === 0) return NOTHING_TO_CHARGE
    const refused = limits.length === 1 && charges[0]?.kind === 'enforce' && limits[0]?.limit.units === 0
    return refused ? ALWAYS_REFUSED : undefined
  }

  async #decideLater(chargeSet: ChargeSet, taken: Promise<Taken>, requestId: string | undefined): Promise<Decision> {
    return this.#decide(chargeSet, await taken, requestId)
  }

  #decide(chargeSet: ChargeSet, taken: Taken, requestId: string | undefined): Decision {
    this.#hotKeys.checked(chargeSet)
    return new LimiterDecision(this, chargeSet, taken, requestId ?? chargeSet.op?.id)
  }
}

/** Time during which an unconfirmed give may be retried. */
const RETRY_US = 600_000_000

/** Age of the oldest units, by this node's clock. */
function ageUs(gives: readonly Give[], nowUs: number): number {
  return Math.max(0, nowUs - Math.min(...gives.map(({ bookedUs }) => bookedUs)))
}

const ALWAYS_REFUSED: Taken = {
  granted: false,
  nowUs: 0,
  grants: [
    { units: 0, short: 'never', remaining: 0, resetAfterUs: 0, retryAfterUs: Number.POSITIVE_INFINITY, delayUs: 0 },
  ],
  source: 'local',
  replayed: false,
}

/** Prefix of request ids: unique per process; a counter follows it. */
function randomPrefix(): string {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2))
  return `${high.toString(36)}${low.toString(36)}-`
}

function defaultStore(): Store {
  if (isOneOfSeveralProcesses()) warnOnce('SLUICE_MEMORY_PER_PROCESS')
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

/** An invalid layer would silently skip rules, and an invalid prefix would merge clients. */
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

function requireOwn(decision: Decision): LimiterDecision {
  if (decision instanceof LimiterDecision) return decision
  throw optionInvalid(
    'decision',
    decision,
    'pass the object that check returned, not a copy: a copy cannot be refunded',
  )
}
