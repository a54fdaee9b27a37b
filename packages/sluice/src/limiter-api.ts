// The interface of a limiter.

import type { Decision } from './decision.ts'
import type { HotKey } from './hot-keys/hot-keys.ts'
import type { JointDecision } from './joint-check.ts'
import type { MaybePromise } from './maybe-promise.ts'
import type { Receipt, Redeemed } from './receipt.ts'
import type { GlobalFactor, OverrideChanges, Signal } from './rules/exception.ts'
import type { RuleExplanation } from './rules/explain.ts'
import type { LimitName } from './rules/limit-names.ts'
import type { Rollout } from './rules/rollout.ts'
import type { Rule } from './rules/rule.ts'
import type { RulesInput } from './rules/rule-input.ts'
import type { BucketName } from './store/store.ts'
import type { Subject } from './subject.ts'

export interface Limiter {
  /** Checks one request. `requestId` names its permits: the same id renews them. */
  check(subject: Subject, requestId?: string): Promise<Decision>
  /** Synchronous check; undefined if it needs a round trip. */
  checkSync(subject: Subject, requestId?: string): Decision | undefined
  /**
   * Check for hot paths: returns the decision synchronously unless it needs a round trip. Throws synchronously on bad
   * input. `expiresMs`: when the caller gives up, on the clock of `performance.now()`; rejects with DEADLINE_EXCEEDED
   * if a remote store has not replied by then. 0: leases or `on_fail` decide, without asking the store.
   */
  decide(subject: Subject, requestId?: string, expiresMs?: number): MaybePromise<Decision>
  /**
   * Checks several subjects of one request, all or nothing over all of them. A bucket that several share is charged
   * once, with the largest cost. Subjects must not have a bypass token.
   */
  decideAll(subjects: readonly Subject[], requestId?: string, expiresMs?: number): MaybePromise<JointDecision>
  /** Decision that a check would return; consumes nothing. */
  peek(subject: Subject, expiresMs?: number): Promise<Decision>
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
  /**
   * Replaces all rollouts atomically; they stay in force when rules are set. Rejects with RULE_INVALID and changes
   * nothing if one is invalid.
   */
  setRollouts(rollouts: readonly Rollout[]): Promise<void>
  /** Kill switch: disables these rules, or all, until the next call; an empty list enables all. */
  disable(ruleIds: readonly string[] | 'everything'): void
  /** Adds, replaces and removes overrides. Throws OPTION_INVALID and changes nothing if one is invalid. */
  changeOverrides(changes: OverrideChanges): void
  /** Replaces all abuse signals; rules react to them by `on_signal`. */
  setSignals(signals: readonly Signal[]): void
  /** Multiplies all limits until the factor expires; undefined ends it. */
  setGlobalFactor(factor: GlobalFactor | undefined): void
  /** Most frequently checked buckets, hottest first; estimated from samples. */
  hotKeys(): readonly HotKey[]
  readonly rules: readonly Rule[]
  readonly version: number
  rule(ruleId: string): Rule | undefined
  /** For services that serve remote nodes (`sluice/remote`). */
  readonly remote: RemoteView
  close(): Promise<void>
}

/** The part of a limiter that remote nodes depend on. */
export type RemoteView = {
  /** Changes whenever the state does. */
  readonly edition: number
  state(): RemoteState
  /** The bucket that a remote node names; undefined if this limiter has to decide the whole request. */
  bucket(name: LimitName, facts: Readonly<Record<string, string>>): BucketName | undefined
}

/** Everything that a remote node needs to decide like this limiter, or to know that it cannot. */
export type RemoteState = {
  readonly version: number
  readonly rules: readonly Rule[]
  readonly ipv6Prefix: number
  readonly layer: 'edge' | 'service' | undefined
  readonly disabled: readonly string[] | 'everything'
  /** Every request has to be decided here: a rollout or the global factor is in force. */
  readonly decidesAll: boolean
  /** Requests with one of these keys have to be decided here, in canonical form. */
  readonly exceptedKeys: readonly (readonly [fact: string, owner: string])[]
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
