// Limiter: match → charges → take → combine → decision. A refusal is a value; an exception means bad input or a failed
// store. Each check sees one complete rule set; a rejected rule set changes nothing.

import type { Limit } from './algorithms/limit.ts'
import { hasPermits } from './algorithms/traits.ts'
import { IPV6_PREFIX_DEFAULT } from './canonical/address.ts'
import { systemClock, wallClock } from './clock.ts'
import { type Decision, type DecisionContext, LimiterDecision, requireOwn, withoutStore } from './decision.ts'
import { LimiterError, optionInvalid } from './errors.ts'
import { type HotKey, HotKeys } from './hot-keys/hot-keys.ts'
import { decideJointly, type JointDecision } from './joint-check.ts'
import type { Explanation, Limiter, PreparedRules, RemoteView } from './limiter-api.ts'
import { checkOptions, checkUnits, type LimiterOptions } from './limiter-options.ts'
import { andThen, isPromise, type MaybePromise } from './maybe-promise.ts'
import {
  ageUs,
  givesOf,
  type Receipt,
  type Redeemed,
  randomPrefix,
  receiptOf,
  receiptTtlUs,
  wholeId,
} from './receipt.ts'
import { bypassing, bypassLimitOf, isBypassed } from './rules/bypass.ts'
import type { ChargeSet } from './rules/charge-set.ts'
import type { GlobalFactor, OverrideChanges, Signal } from './rules/exception.ts'
import { Exceptions } from './rules/exceptions.ts'
import { withBypasses } from './rules/explain.ts'
import { type ParsedRollout, parsingRollouts, type Rollout } from './rules/rollout.ts'
import type { Rule } from './rules/rule.ts'
import type { RulesInput } from './rules/rule-input.ts'
import { type Disabled, NOTHING_DISABLED, RuleSet } from './rules/rule-set.ts'
import { inSlices, runSync, type Sliced } from './slices.ts'
import { memoryStore } from './store/memory.ts'
import type { Give, GiveResult, IdempotencyKey, Store, Take, Taken } from './store/store.ts'
import { StoreFullError } from './store/store-full-error.ts'
import type { Subject } from './subject.ts'
import { isOneOfSeveralProcesses, warnOnce } from './warning.ts'

export function createLimiter(options: LimiterOptions): Limiter {
  return new RuleLimiter(options)
}

type TakeOrPeek = (chargeSet: ChargeSet) => MaybePromise<Taken | undefined>

class RuleLimiter implements Limiter, DecisionContext {
  readonly #store: Store
  readonly #options: LimiterOptions
  readonly #hotKeys: HotKeys
  #rules: RuleSet
  readonly #exceptions: Exceptions
  #disabled: Disabled = NOTHING_DISABLED
  #rollouts: readonly ParsedRollout[] = []
  /** Settles after the last call of setRollouts: calls take effect in order. */
  #rolledOut: Promise<void> = Promise.resolve()
  #closed = false
  #checks = 0
  #changes = 0
  #idPrefix: string | undefined
  readonly #nextId = (): string => this.newId()
  /** Idempotency keys of decisions that were refunded or have a receipt. */
  readonly #idempotencyKeys = new WeakMap<LimiterDecision, IdempotencyKey>()

  constructor(options: LimiterOptions) {
    checkOptions(options)
    this.#options = options
    this.#store = options.store ?? defaultStore()
    this.#hotKeys = new HotKeys(options.clock ?? systemClock, Math.random)
    this.#exceptions = new Exceptions(options.clock ?? wallClock, options.ipv6Prefix ?? IPV6_PREFIX_DEFAULT)
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

  get remote(): RemoteView {
    const exceptions = this.#exceptions
    return {
      edition: this.#changes + exceptions.changes,
      state: () => ({
        version: this.version,
        rules: this.rules,
        ipv6Prefix: this.#options.ipv6Prefix ?? IPV6_PREFIX_DEFAULT,
        layer: this.#options.layer,
        disabled: this.#disabled === 'everything' ? this.#disabled : [...this.#disabled],
        decidesAll: this.#rules.isRollingOut || exceptions.hasGlobalFactor,
        exceptedKeys: exceptions.keys,
      }),
      bucket: (name, facts) => this.#rules.namedBucket(name, facts, this.#disabled, exceptions.active),
    }
  }

  wallAheadUs(): number {
    return this.#store.wallAheadUs?.() ?? 0
  }

  newId(): string {
    this.#checks += 1
    return `${this.#issuer}${this.#checks.toString(36)}`
  }

  async check(subject: Subject, requestId?: string): Promise<Decision> {
    if (subject?.bypassToken !== undefined) return this.decide(subject, requestId)
    const chargeSet = this.#chargesFor(subject, requestId)
    const taken = withoutStore(chargeSet) ?? (await this.#store.take(chargeSet))
    return this.#decide(chargeSet, taken, requestId)
  }

  checkSync(subject: Subject, requestId?: string): Decision | undefined {
    if (subject?.bypassToken !== undefined)
      // takeSync returns no promise
      return this.#decideWithToken(subject, requestId, (set) => this.#store.takeSync?.(set)) as Decision | undefined
    const chargeSet = this.#chargesFor(subject, requestId)
    const taken = withoutStore(chargeSet) ?? this.#store.takeSync?.(chargeSet)
    return taken && this.#decide(chargeSet, taken, requestId)
  }

  decide(subject: Subject, requestId?: string, expiresMs?: number): MaybePromise<Decision> {
    if (subject?.bypassToken !== undefined) {
      const take: TakeOrPeek = (set) => this.#store.take(expiring(set, expiresMs))
      return this.#decideWithToken(subject, requestId, take) as MaybePromise<Decision> // take always replies
    }
    const chargeSet = this.#chargesFor(subject, requestId)
    const taken = withoutStore(chargeSet) ?? this.#store.take(expiring(chargeSet, expiresMs))
    return isPromise(taken) ? this.#decideLater(chargeSet, taken, requestId) : this.#decide(chargeSet, taken, requestId)
  }

  decideAll(subjects: readonly Subject[], requestId?: string, expiresMs?: number): MaybePromise<JointDecision> {
    const permitId = requestId ?? this.newId()
    const sets = subjects.map((subject) => this.#chargesFor(withoutBypass(subject), permitId))
    return andThen(
      decideJointly(this, sets, (whole) => this.#store.take(expiring(whole, expiresMs)), requestId),
      (joint) => {
        for (const set of sets) this.#hotKeys.checked(set)
        return joint
      },
    )
  }

  async peek(subject: Subject, expiresMs?: number): Promise<Decision> {
    const peek = (set: ChargeSet) => this.#store.peek(set.charges, true, expiresMs)
    return (await this.#decideWithToken(subject, undefined, peek, true)) as Decision // peeks reply
  }

  async explain(subject: Subject): Promise<Explanation> {
    const [rules, disabled] = [this.#rules, this.#disabled] // the rules may change during the peek
    const decision = await this.peek(subject)
    const explained = await inSlices(rules.explain(subject, disabled, this.#exceptions.active))
    return { decision, rules: withBypasses(explained, decision.exceptions) }
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
    return receiptOf(key, this.#issuer, decided.op?.id, decided.allGives)
  }

  async redeem(receipt: Receipt, units?: number): Promise<Redeemed> {
    if (units !== 0) checkUnits(units)
    this.#requireOpen()
    const { id, op, ttlUs, items } = receipt
    const { gives, leftOut } = givesOf(receipt, this.#issuer, (limitId, owner) => this.#limitsOf(limitId, owner))
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
    for (const bucket of this.#rules.bucketsOf(ruleId, key, this.#exceptions.active)) {
      const reset = this.#store.reset(bucket)
      if (isPromise(reset)) await reset // a synchronous store resets all buckets at once: the replay depends on it
    }
  }

  setRules(rules: RulesInput, version: number = this.version + 1): void {
    this.#activate(runSync(this.#compile(rules, version)))
  }

  async prepareRules(rules: RulesInput, version: number = this.version + 1): Promise<PreparedRules> {
    const rollouts = this.#rollouts
    const prepared = await inSlices(this.#compile(rules, version))
    return {
      rules: prepared.rules,
      enforce: () => {
        const isCurrent = this.#rollouts === rollouts
        this.#activate(isCurrent ? prepared : runSync(prepared.withRollouts(this.#rollouts)))
      },
    }
  }

  setRollouts(rollouts: readonly Rollout[]): Promise<void> {
    const done = this.#rolledOut.then(() => this.#rollOut(rollouts))
    this.#rolledOut = done.catch(() => {}) // the caller gets the error
    return done
  }

  async #rollOut(rollouts: readonly Rollout[]): Promise<void> {
    const parsed = await inSlices(parsingRollouts(rollouts))
    for (;;) {
      const before = this.#rules
      const next = await inSlices(before.withRollouts(parsed))
      if (this.#rules !== before) continue // other rules were set meanwhile
      this.#activate(next)
      this.#rollouts = parsed
      return
    }
  }

  disable(ruleIds: readonly string[] | 'everything'): void {
    const some = ruleIds === 'everything' ? ruleIds : new Set(ruleIds)
    this.#disabled = ruleIds.length === 0 ? NOTHING_DISABLED : some
    this.#changes += 1
  }

  changeOverrides(changes: OverrideChanges): void {
    this.#exceptions.changeOverrides(changes)
  }

  setSignals(signals: readonly Signal[]): void {
    this.#exceptions.setSignals(signals)
  }

  setGlobalFactor(factor: GlobalFactor | undefined): void {
    this.#exceptions.setGlobalFactor(factor)
  }

  hotKeys(): readonly HotKey[] {
    return this.#hotKeys.list()
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#store.close()
  }

  /** Prefix of all ids. Drawn on first use, because Workers reject random values while modules load. */
  get #issuer(): string {
    this.#idPrefix ??= randomPrefix()
    return this.#idPrefix
  }

  #activate(rules: RuleSet): void {
    this.#rules = rules
    this.#changes += 1
  }

  #compile(rules: RulesInput, version: number): Sliced<RuleSet> {
    const { layer, ipv6Prefix = IPV6_PREFIX_DEFAULT, clock = wallClock } = this.#options
    const refusesSpread = this.#store.refusesSpread && ((limit: Limit) => this.#store.refusesSpread?.(limit))
    const options = { layer, ipv6Prefix, stores: this.#store.named ?? [], refusesSpread }
    return RuleSet.of(rules, version, options, clock, this.#rules, this.#rollouts)
  }

  #chargesFor(subject: Subject, requestId: string | undefined): ChargeSet {
    this.#requireOpen()
    return this.#rules.chargesFor(subject, requestId ?? this.#nextId, this.#disabled, this.#exceptions.active)
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

  /** The active limits or sublimits with this id, for this owner. */
  #limitsOf(id: string, owner: string): readonly Limit[] {
    const bypass = bypassLimitOf(id)
    if (bypass !== undefined) return [bypass]
    return this.#rules.limitsOf(wholeId(id), owner, this.#exceptions.active).flatMap((whole) => {
      if (whole.shards !== undefined) return whole.shards.find((shard) => shard.id === id) ?? []
      return whole.spread === undefined ? whole : (this.#store.sublimit?.(whole, id) ?? [])
    })
  }

  #requireOpen(): void {
    if (this.#closed) throw new LimiterError('CLOSED', 'the limiter was closed: create a new one')
  }

  /** Charges the bypass token of the request; the rules instead if it is invalid or its limit is used up. */
  #decideWithToken(
    subject: Subject,
    requestId: string | undefined,
    take: TakeOrPeek,
    isPeek = false,
  ): MaybePromise<Decision | undefined> {
    const usual = this.#chargesFor(subject, requestId)
    const { bypass: verify } = this.#options
    const bypass = verify && bypassing(usual, subject, verify)
    const decided = (set: ChargeSet) => (taken: Taken | undefined) =>
      taken && this.#decide(set, taken, requestId, isPeek)
    const decideUsual = () => andThen(withoutStore(usual) ?? take(usual), decided(usual))
    if (bypass === undefined) return decideUsual()
    return andThen(take(bypass), (taken) =>
      taken && !isBypassed(bypass, taken) ? decideUsual() : decided(bypass)(taken),
    )
  }

  async #decideLater(chargeSet: ChargeSet, taken: Promise<Taken>, requestId: string | undefined): Promise<Decision> {
    return this.#decide(chargeSet, await taken, requestId)
  }

  #decide(chargeSet: ChargeSet, taken: Taken, requestId: string | undefined, isPeek = false): Decision {
    if (!isPeek) this.#hotKeys.checked(chargeSet)
    return new LimiterDecision(this, chargeSet, taken, requestId ?? chargeSet.op?.id)
  }
}

function expiring(chargeSet: ChargeSet, expiresMs: number | undefined): Take {
  return expiresMs === undefined ? chargeSet : { charges: chargeSet.charges, op: chargeSet.op, expiresMs }
}

/** Time during which an unconfirmed give may be retried. */
const RETRY_US = 600_000_000

function withoutBypass(subject: Subject): Subject {
  if (subject?.bypassToken === undefined) return subject
  throw optionInvalid('subject.bypassToken', '…', 'pass no token: it is for requests with one subject')
}

function defaultStore(): Store {
  if (isOneOfSeveralProcesses()) warnOnce('SLUICE_MEMORY_PER_PROCESS')
  return memoryStore()
}
