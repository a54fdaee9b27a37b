// Limiter of a remote node: decides like a node of the service, from leases, without access to the store. Rules come
// from the service. Requests that only the service can decide are sent to it: keys with overrides or signals, bypass
// tokens, rules under rollout, requests for which the rules of both differ, and all requests while the newest rules
// cannot be applied here.

import type { Decision } from '../decision.ts'
import { LimiterError, optionInvalid } from '../errors.ts'
import { type GuardedStore, guardStore } from '../failure/guard-store.ts'
import type { HotKey } from '../hot-keys/hot-keys.ts'
import type { JointDecision } from '../joint-check.ts'
import { leaseStore } from '../lease/lease-store.ts'
import { createLimiter } from '../limiter.ts'
import type { Explanation, Limiter, PreparedRules, RemoteView } from '../limiter-api.ts'
import { isPromise, type MaybePromise } from '../maybe-promise.ts'
import type { Receipt, Redeemed } from '../receipt.ts'
import type { Rule } from '../rules/rule.ts'
import type { Store } from '../store/store.ts'
import type { Subject } from '../subject.ts'
import type { NodeRules } from './node-rules.ts'
import { type Exchange, RemoteStore } from './remote-store.ts'

export type RemoteNodeOptions = {
  readonly exchange: Exchange
  readonly deadlineMs: number
  readonly nodes: number
  readonly onTransition?: ((transition: { readonly state: 'open' | 'closed' }) => void) | undefined
  /** Called after each state of the service, and when the health changes. */
  readonly onHealth?: ((health: RemoteHealth) => void) | undefined
  close(): void
}

export type RemoteHealth = {
  /** degraded: the node may not decide by the newest rules of the service, or the service decides every request. */
  readonly status: 'ready' | 'degraded'
  /** One sentence per cause, with its consequence; empty if the node is ready. */
  readonly reasons: readonly string[]
  /** Version of the rules in force here. */
  readonly version: number
}

/** A limiter that decides from leases of the service. */
export interface RemoteLimiter extends Limiter {
  readonly health: RemoteHealth
}

export class RemoteNode implements RemoteLimiter {
  readonly #options: RemoteNodeOptions
  readonly #store: RemoteStore
  readonly #guard: GuardedStore
  readonly #inner: Limiter
  /** The newest state. */
  #rules: NodeRules
  /** Text of the rules in force, and the last change of them. */
  #enforced: string
  #applied: Promise<void> = Promise.resolve()
  /** Reason that the newest state cannot be read, or not be applied: then the service decides every request. */
  #unreadable: string | undefined
  #inapplicable: string | undefined
  /** Reason that no newer state can arrive. */
  #cutOff: string | undefined
  #closed = false
  /** `ipv6Prefix` and `layer` of the service at startup. If either changes, the service decides every request. */
  readonly #layout: string
  /** Request ids of decisions that the service made. */
  readonly #decidedThere = new WeakMap<Decision, string>()

  constructor(rules: NodeRules, options: RemoteNodeOptions) {
    this.#options = options
    this.#rules = rules
    this.#enforced = rules.state.rules
    this.#layout = layoutOf(rules)
    const { exchange, deadlineMs, nodes } = options
    this.#store = new RemoteStore({ exchange, nameOf: (limitId) => this.#rules.nameOf(limitId) })
    const onTransition: RemoteNodeOptions['onTransition'] = (transition) => {
      options.onTransition?.(transition)
      this.#healthChanged()
    }
    this.#guard = guardStore(this.#store, { deadlineMs, nodes, onTransition })
    const { ipv6Prefix, layer, version, disabled } = rules.state
    this.#inner = createLimiter({
      rules: rules.rules,
      version,
      store: this.#leased(),
      ipv6Prefix,
      layer: layer === 'edge' || layer === 'service' ? layer : undefined,
    })
    this.#inner.disable(disabled)
  }

  /** The service has the stores and regions that its rules name, and has accepted the rules. */
  #leased(): Store {
    const stores = () => this.#rules.stores
    return Object.defineProperties(leaseStore(this.#guard), {
      named: { get: stores },
      refusesSpread: { value: () => undefined },
    })
  }

  get health(): RemoteHealth {
    const { unknown } = this.#rules
    const { version } = this.#inner
    const changed = layoutOf(this.#rules) === this.#layout ? undefined : 'ipv6Prefix or layer of the service changed'
    const reasons = [
      this.#cutOff && `${this.#cutOff}: rules of version ${version} stay in force`,
      this.#behind && `${this.#behind}: the service decides every request`,
      unknown &&
        `${unknown} that this version of sluice does not know: the service decides every request; upgrade sluice`,
      changed && `${changed}: the service decides every request; create the limiter again`,
      this.#guard.breaker === 'open' && 'the service does not reply: leases and then on_fail decide',
    ].filter((reason) => typeof reason === 'string')
    return { status: reasons.length === 0 ? 'ready' : 'degraded', reasons, version }
  }

  /**
   * Applies states of the service one at a time. Otherwise a large older state could finish preparing last and replace
   * a newer one.
   */
  follow(rules: NodeRules): Promise<void> {
    this.#rules = rules
    this.#unreadable = undefined
    const isNewest = () => this.#rules === rules
    this.#applied = this.#applied.catch(() => {}).then(() => (isNewest() ? this.#apply(rules) : undefined))
    return this.#applied
  }

  async #apply({ rules, state }: NodeRules): Promise<void> {
    try {
      if (state.rules !== this.#enforced) {
        const prepared = await this.#inner.prepareRules(rules, state.version)
        prepared.enforce()
        this.#enforced = state.rules
      }
      this.#inapplicable = undefined
    } catch (error) {
      this.#inapplicable = `rules of version ${state.version} cannot be applied (${messageOf(error)})`
    }
    this.#inner.disable(state.disabled)
    this.#healthChanged()
  }

  /** The service sent a state that cannot be read: what has changed is unknown. */
  unreadable(error: unknown): void {
    this.#unreadable = `the newest state of the service cannot be read (${messageOf(error)})`
    this.#healthChanged()
  }

  /** The stream of states ended, or with undefined: it sends states again. */
  cutOff(reason: string | undefined): void {
    if (this.#cutOff === reason) return
    this.#cutOff = reason
    this.#healthChanged()
  }

  get #behind(): string | undefined {
    return this.#unreadable ?? this.#inapplicable
  }

  #healthChanged(): void {
    if (!this.#closed) this.#options.onHealth?.(this.health)
  }

  async check(subject: Subject, requestId?: string): Promise<Decision> {
    return this.decide(subject, requestId)
  }

  checkSync(subject: Subject, requestId?: string): Decision | undefined {
    if (this.#needsService(subject)) return undefined
    const decision = this.#inner.checkSync(subject, requestId)
    return decision === undefined || isUndecided(decision) ? undefined : decision
  }

  decide(subject: Subject, requestId?: string, expiresMs?: number): MaybePromise<Decision> {
    const there: There = { subject, requestId, dryRun: false, expiresMs }
    if (this.#needsService(subject)) return this.#decideThere(there)
    const decision = this.#inner.decide(subject, requestId, expiresMs)
    if (isPromise(decision)) return this.#decided(there, decision)
    return isUndecided(decision) ? this.#decideThere(there) : decision
  }

  /** Joint checks that need the service are refused with an error: it has no message for them. */
  decideAll(subjects: readonly Subject[], requestId?: string, expiresMs?: number): MaybePromise<JointDecision> {
    if (subjects.some((subject) => this.#needsService(subject))) throw atService('decideAll')
    return this.#inner.decideAll(subjects, requestId, expiresMs)
  }

  async peek(subject: Subject, expiresMs?: number): Promise<Decision> {
    const there: There = { subject, requestId: undefined, dryRun: true, expiresMs }
    if (this.#needsService(subject)) return this.#decideThere(there)
    const decision = await this.#inner.peek(subject, expiresMs)
    return isUndecided(decision) ? this.#decideThere(there) : decision
  }

  async explain(subject: Subject): Promise<Explanation> {
    const { rules } = await this.#inner.explain(subject)
    return { decision: await this.peek(subject), rules }
  }

  async give(decision: Decision, units?: number): Promise<void> {
    const id = this.#decidedThere.get(decision)
    if (id === undefined) return this.#inner.give(decision, units)
    await this.#refund(id, units)
  }

  async release(decision: Decision): Promise<void> {
    const id = this.#decidedThere.get(decision)
    if (id === undefined) return this.#inner.release(decision)
    await this.#refund(id, 0)
  }

  async renew(decision: Decision): Promise<boolean> {
    if (!this.#decidedThere.has(decision)) return this.#inner.renew(decision)
    throw optionInvalid('decision', decision.requestId, 'renew it at the service, which decided it')
  }

  receipt(decision: Decision): Receipt {
    if (!this.#decidedThere.has(decision)) return this.#inner.receipt(decision)
    throw optionInvalid('decision', decision.requestId, 'pass its requestId to the refund API of the service instead')
  }

  redeem(receipt: Receipt, units?: number): Promise<Redeemed> {
    return this.#inner.redeem(receipt, units)
  }

  async reset(): Promise<void> {
    throw atService('reset')
  }

  setRules(): void {
    throw atService('setRules')
  }

  async prepareRules(): Promise<PreparedRules> {
    throw atService('prepareRules')
  }

  async setRollouts(): Promise<void> {
    throw atService('setRollouts')
  }

  disable(): void {
    throw atService('disable')
  }

  changeOverrides(): void {
    throw atService('changeOverrides')
  }

  setSignals(): void {
    throw atService('setSignals')
  }

  setGlobalFactor(): void {
    throw atService('setGlobalFactor')
  }

  hotKeys(): readonly HotKey[] {
    return this.#inner.hotKeys()
  }

  get rules(): readonly Rule[] {
    return this.#inner.rules
  }

  get version(): number {
    return this.#inner.version
  }

  get remote(): RemoteView {
    return this.#inner.remote
  }

  rule(ruleId: string): Rule | undefined {
    return this.#inner.rule(ruleId)
  }

  /** Returns leases, then closes the connection. */
  async close(): Promise<void> {
    this.#closed = true
    await this.#inner.close()
    this.#options.close()
  }

  #needsService(subject: Subject): boolean {
    return this.#behind !== undefined || this.#rules.needsService(subject) || layoutOf(this.#rules) !== this.#layout
  }

  async #decided(there: There, pending: Promise<Decision>): Promise<Decision> {
    const decision = await pending
    return isUndecided(decision) ? this.#decideThere(there) : decision
  }

  /**
   * If the service does not reply in time, or the circuit breaker is open, the limits known here decide: leases, or
   * `on_fail`.
   */
  async #decideThere({ subject, requestId, dryRun, expiresMs }: There): Promise<Decision> {
    const request = { type: 'decide', subject: JSON.stringify(subject), requestId: requestId ?? '', dryRun } as const
    try {
      const reply = await this.#guard.request(() => this.#store.send(request), expiresMs)
      if (reply.type !== 'decided') throw new LimiterError('STORE_UNAVAILABLE', 'the service did not decide')
      const unknown = { fullAfterMs: null, fullAtMs: null } // an older service does not send them
      const decision = { ...unknown, ...(JSON.parse(reply.decision) as Decision), requestId: reply.requestId }
      this.#decidedThere.set(decision, reply.requestId)
      return decision
    } catch (error) {
      if (!(error instanceof LimiterError) || error.code !== 'STORE_UNAVAILABLE') throw error
      const { bypassToken: _, ...rest } = subject
      return dryRun ? this.#inner.peek(rest, WITHOUT_SERVICE) : this.#inner.decide(rest, requestId, WITHOUT_SERVICE)
    }
  }

  async #refund(requestId: string, units: number | undefined): Promise<void> {
    await this.#guard.request(() => this.#store.send({ type: 'refund', requestId, units }))
  }
}

/** `expiresMs` of a decision by leases or `on_fail`, because the service did not decide. */
const WITHOUT_SERVICE = 0

/** A request for a decision of the service. `expiresMs`: when the caller gives up. */
type There = {
  readonly subject: Subject
  readonly requestId: string | undefined
  readonly dryRun: boolean
  readonly expiresMs: number | undefined
}

/** Whether the store left the decision to the service. */
function isUndecided(decision: Decision): boolean {
  if (decision.allowed || decision.source !== 'local') return false
  return decision.outcomes.some(({ short }) => short === 'stale_rules') // computed on demand
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** Settings that define keys of buckets. */
function layoutOf({ state: { ipv6Prefix, layer } }: NodeRules): string {
  return `${ipv6Prefix} ${layer}`
}

function atService(method: string): LimiterError {
  return new LimiterError('OPTION_INVALID', `${method}: rules, overrides and buckets are changed at the service`)
}
