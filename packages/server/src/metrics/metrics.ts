// Prometheus metrics of the service. Counting is plain arithmetic on the hot path; values are formatted at scrape time.
// Labels are rule ids and error codes, never client data, and their cardinality is bounded.

import { Registry } from 'prom-client'
import {
  type ErrorCode,
  type Limiter,
  type PolicyReason,
  type Rule,
  type Source,
  type Store,
  type StoreStats,
  storeStats,
} from 'sluice'
import type { RedisStore, ServerName } from 'sluice/redis'
import { OTHER } from './bounded-counts.ts'
import { type EventCounts, NO_EVENTS, registerEvents } from './event-metrics.ts'
import { type ExceptionFacts, NO_EXCEPTIONS, registerExceptions } from './exception-metrics.ts'
import { type GrpcFacts, NO_GRPC, registerGrpc } from './grpc-metrics.ts'
import { registerRedis, WatchedRedis } from './redis-metrics.ts'
import { type Metric, type Report, registerProcess, reportOf, sluiceMetricsOf, totalsOf } from './reports.ts'
import { NO_ROLLOUTS, type RolloutFacts, registerRollouts } from './rollout-metrics.ts'
import { registerServers, ServerCounts } from './server-counts.ts'
import {
  type AdminFacts,
  type CheckTotals,
  type DeliveryTotals,
  NO_RULE,
  type PolicyReasonCounts,
  RULES_MAX,
  type RuleCounts,
  type RulesFacts,
  registerService,
  ServiceCounts,
  type UnitTotals,
  type WriteTotals,
} from './service-metrics.ts'
import { registerStore } from './store-metrics.ts'
import { registerWorkers } from './worker-metrics.ts'

export class Metrics {
  readonly registry: Registry = new Registry()
  readonly #counts = new ServiceCounts()
  readonly #redis = new WatchedRedis()
  readonly #servers = new ServerCounts()
  #store: Pick<Store, 'stats'> = {}
  #events: { totals(): EventCounts } = { totals: () => NO_EVENTS }
  #exceptions: () => ExceptionFacts = () => NO_EXCEPTIONS
  #rollouts: () => RolloutFacts = () => NO_ROLLOUTS
  #grpc: () => GrpcFacts = () => NO_GRPC
  #storeStats: StoreStats = storeStats({})

  constructor() {
    registerProcess(this.registry)
    registerWorkers(this.registry)
    registerService(this.registry, this.#counts)
    registerStore(this.registry, () => this.#storeStats)
    registerRedis(this.registry, this.#redis)
    registerEvents(this.registry, () => this.#events.totals())
    registerServers(this.registry, this.#servers)
    registerExceptions(this.registry, () => this.#exceptions())
    registerRollouts(this.registry, () => this.#rollouts())
    registerGrpc(this.registry, () => this.#grpc())
  }

  /** `policyReason`: why `on_fail` decided, for at least one limit. */
  decided(
    ruleId: string | null,
    allowed: boolean,
    source: Source,
    seconds: number,
    policyReason: PolicyReason | undefined = source === 'policy' ? 'unavailable' : undefined,
  ): void {
    this.#counts.sources[source] += 1
    const counts = this.#countsOf(ruleId ?? NO_RULE)
    if (allowed) counts.allowed += 1
    else counts.refused += 1
    if (source === 'policy') {
      if (allowed) counts.failOpen += 1
      else counts.failClosed += 1
    }
    if (policyReason !== undefined) this.#counts.decidedByPolicy(policyReason, source)
    this.#counts.decisionSeconds.observe(seconds)
  }

  /** Counts a refusal by its limit and endpoint pattern, beside `decided`. */
  refused(ruleId: string | null, limitName: string | undefined, endpointPattern: string): void {
    this.#counts.refusedByEndpoint.add(endpointPattern)
    if (limitName !== undefined) this.#counts.refusedByLimit.add(`${limitName} ${ruleId ?? NO_RULE}`)
  }

  shadowRefused(ruleId: string): void {
    this.#countsOf(ruleId).shadowRefused += 1
  }

  storeAnswered(requests: number, seconds: number, at: ServerName): void {
    this.#counts.batchRequests.observe(requests)
    this.#servers.answered(at, seconds)
  }

  storeFailed(code: ErrorCode, at: ServerName): void {
    this.#servers.failed(at, code)
  }

  /** Returns the number of failures with this code, this one included. */
  forwardAuthFailed(code: string): number {
    return countOne(this.#counts.forwardAuthErrors, code)
  }

  tokenRejected(): void {
    this.#counts.tokensRejected += 1
  }

  receiptDropped(): void {
    this.#counts.receiptsDropped += 1
  }

  receiptUnconfirmed(): void {
    this.#counts.receiptsUnconfirmed += 1
  }

  /** Call it when rules became active: labels of removed rules make room. */
  rulesActive(rules: readonly Rule[]): void {
    this.#counts.activate(rules)
  }

  /** Records that a rule change became active on this node, `seconds` after it was made. */
  rulesArrived(seconds: number): void {
    this.#counts.propagationSeconds.observe(seconds)
  }

  watchStore(store: Pick<Store, 'stats'>): void {
    this.#store = store
  }

  /** `name` replaces the name `default` in labels. */
  watchRedis(store: Pick<RedisStore, 'info' | 'servers'>, name?: string): void {
    this.#redis.add(store, name)
  }

  watchRules(facts: () => RulesFacts): void {
    this.#counts.rulesFacts = facts
  }

  watchLimiter(limiter: Pick<Limiter, 'hotKeys'>): void {
    this.#counts.hotKeys = () => limiter.hotKeys()
  }

  watchUnknown(content: { counts(): Readonly<Record<string, number>> }): void {
    this.#counts.unknownContent = () => content.counts()
  }

  watchWebhooks(webhooks: DeliveryTotals): void {
    this.#counts.webhooks = webhooks
  }

  watchAdmin(admin: AdminFacts): void {
    this.#counts.admin = admin
  }

  watchEvents(events: { totals(): EventCounts }): void {
    this.#events = events
  }

  watchExceptions(facts: () => ExceptionFacts): void {
    this.#exceptions = facts
  }

  watchRollouts(facts: () => RolloutFacts): void {
    this.#rollouts = facts
  }

  watchGrpc(facts: () => GrpcFacts): void {
    this.#grpc = facts
  }

  watchConnections<C extends ServiceCounts['ports'][number]>(connections: C): C {
    this.#counts.ports.push(connections)
    return connections
  }

  watchDecisionRecords(totals: WriteTotals): void {
    this.#counts.decisionRecords = totals
  }

  checkTotals(): CheckTotals {
    return this.#counts.checkTotals()
  }

  unitTotals(): UnitTotals {
    const { units_charged, lease_units_expired } = storeStats(this.#store)
    return { unitsCharged: units_charged, unitsExpired: lease_units_expired }
  }

  policyReasons(): PolicyReasonCounts {
    return this.#counts.policyReasonCounts()
  }

  /** Time since the rule source last confirmed the active rules. */
  rulesAgeSeconds(): number {
    return this.#counts.rulesFacts().ageSeconds
  }

  /** Cumulative counts of decisions, for live figures. */
  decisionCounts(): { allowed: number; refused: number; sources: Record<Source, number>; latency: number[] } {
    const { decided, refused } = this.checkTotals()
    const { sources, decisionSeconds } = this.#counts
    return { allowed: decided - refused, refused, sources: { ...sources }, latency: decisionSeconds.counts() }
  }

  /** Refused checks by rule label, of rules that refused any. */
  refusedByRule(): Map<string, number> {
    const counts = [...this.#counts.rules].map(([rule, { refused }]) => [rule, refused] as const)
    return new Map(counts.filter(([, refused]) => refused > 0))
  }

  /** Returns the text of a scrape of this process alone. */
  async scrape(): Promise<string> {
    await this.#redis.refresh()
    this.#readStore()
    return this.registry.metrics()
  }

  /** Returns the metrics of this process, to be merged with those of other workers. */
  async report(): Promise<Report> {
    await this.#redis.refresh() // first, so that counters and gauges show the same moment
    this.#readStore()
    return reportOf(this.registry)
  }

  /** Returns the `sluice_` metrics of this process as values. */
  async values(): Promise<Metric[]> {
    await this.#redis.refresh()
    this.#readStore()
    return sluiceMetricsOf(this.registry)
  }

  totals(): Promise<string> {
    this.#readStore()
    return totalsOf(this.registry)
  }

  /** Runs once per scrape, so that all metrics of the store show the same moment. */
  #readStore(): void {
    this.#storeStats = storeStats(this.#store)
  }

  #countsOf(rule: string): RuleCounts {
    const { rules } = this.#counts
    const counts = rules.get(rule)
    if (counts !== undefined) return counts
    if (rules.size >= RULES_MAX && rule !== OTHER) return this.#countsOf(OTHER)
    const fresh = { allowed: 0, refused: 0, shadowRefused: 0, failOpen: 0, failClosed: 0 }
    rules.set(rule, fresh)
    return fresh
  }
}

function countOne<K>(counts: Map<K, number>, key: K): number {
  const count = (counts.get(key) ?? 0) + 1
  counts.set(key, count)
  return count
}
