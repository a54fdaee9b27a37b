// What the service tells Prometheus. Counting is plain arithmetic on the hot path, put into words only at scrape.
// Labels are rule ids and error codes, never anything that came from a client; their number is bounded.

import { type Aggregator, Counter, collectDefaultMetrics, Gauge, type Histogram, Registry } from 'prom-client'
import type { ErrorCode, HotKey, Limiter, Source, Store } from 'sluice'
import type { RedisStore } from 'sluice/redis'
import type { Records } from '../node/records.ts'
import { VERSION } from '../package-facts.ts'
import type { ProblemCode } from '../problems/problem.ts'
import type { Webhooks } from '../webhooks/webhooks.ts'
import { KeptCounts, registerKept } from './kept-metrics.ts'
import { registerRedis, WatchedRedis } from './redis-metrics.ts'
import { aggregateProcessMetrics, type Report, reportOf, totalsOf } from './reports.ts'
import { Tally } from './tally.ts'
import { registerWorkers } from './worker-metrics.ts'

/** Rules beyond these share the label `other`: a scrape has to stay readable. */
const RULE_LABELS_MAX = 10_000
const NO_RULE = 'none'
const OTHER_RULES = 'other'

const DECISION_SECONDS = [1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.05, 0.25, 1]
const STORE_SECONDS = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1]
const BATCH_TAKES = [1, 2, 5, 10, 20, 50, 100, 200]

const RULES_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/** What is known about the rules in force; the age is since they were last known to be those of their source. */
export type RulesFacts = { readonly version: number; readonly valid: boolean; readonly ageSeconds: number }

type RuleCounts = { allowed: number; refused: number; shadow_refused: number }

export class Metrics {
  readonly registry: Registry = new Registry()
  readonly kept: KeptCounts = new KeptCounts()
  /** Tokens that were not known, revoked or expired. */
  tokensRefused = 0
  readonly #forwardAuthErrors = new Map<ProblemCode, number>()
  readonly #checks = new Map<string, RuleCounts>()
  readonly #sources: Record<Source, number> = { store: 0, lease: 0, local: 0, policy: 0 }
  readonly #storeErrors = new Map<ErrorCode, number>()
  readonly #decisionSeconds = new Tally(DECISION_SECONDS)
  readonly #storeSeconds = new Tally(STORE_SECONDS)
  readonly #batchTakes = new Tally(BATCH_TAKES)
  #storeStats: () => Readonly<Record<string, number>> = () => ({})
  #webhooks: Pick<Webhooks, 'delivered' | 'dropped'> = { delivered: 0, dropped: 0 }
  #records: Pick<Records, 'killSwitch' | 'violations'> | undefined
  readonly #rulesSeconds = new Tally(RULES_SECONDS)
  #rules: () => RulesFacts = () => ({ version: 0, valid: true, ageSeconds: 0 })
  #hotKeys: () => readonly HotKey[] = () => []
  readonly #redis = new WatchedRedis()

  constructor() {
    collectDefaultMetrics({ register: this.registry })
    aggregateProcessMetrics(this.registry)
    registerWorkers(this.registry)
    this.#registerChecks()
    this.#registerStore()
    registerRedis(this.registry, this.#redis)
    this.#registerRegion()
    this.#registerHotKeys()
    this.#registerRules()
    this.#registerAccess()
  }

  decided(ruleId: string | null, allowed: boolean, source: Source, seconds: number): void {
    this.#sources[source] += 1
    const counts = this.#countsOf(ruleId ?? NO_RULE)
    if (allowed) counts.allowed += 1
    else counts.refused += 1
    this.#decisionSeconds.observe(seconds)
  }

  shadowRefused(ruleId: string): void {
    this.#countsOf(ruleId).shadow_refused += 1
  }

  storeAnswered(takes: number, seconds: number): void {
    this.#batchTakes.observe(takes)
    this.#storeSeconds.observe(seconds)
  }

  storeFailed(code: ErrorCode): void {
    this.#storeErrors.set(code, (this.#storeErrors.get(code) ?? 0) + 1)
  }

  /** Returns how many there were with this code, this one included. */
  forwardAuthFailed(code: ProblemCode): number {
    const count = (this.#forwardAuthErrors.get(code) ?? 0) + 1
    this.#forwardAuthErrors.set(code, count)
    return count
  }

  watchStore(store: Store): void {
    this.#storeStats = () => store.stats?.() ?? {}
  }

  watchRules(facts: () => RulesFacts): void {
    this.#rules = facts
  }

  /** A change of the rules is in force here, so long after it was made. */
  rulesArrived(seconds: number): void {
    this.#rulesSeconds.observe(seconds)
  }

  watchRedis(store: Pick<RedisStore, 'facts' | 'servers'>): void {
    this.#redis.store = store
  }

  /** The text of a scrape of this process alone. */
  async scrape(): Promise<string> {
    await this.#redis.refresh()
    return this.registry.metrics()
  }

  /** For a scrape of the whole node. */
  async report(): Promise<Report> {
    await this.#redis.refresh() // first, so that the counters are those of the moment of the answer
    return reportOf(this.registry)
  }

  totals(): Promise<string> {
    return totalsOf(this.registry)
  }

  watchLimiter(limiter: Limiter): void {
    this.#hotKeys = () => limiter.hotKeys()
  }

  watchWebhooks(webhooks: Webhooks): void {
    this.#webhooks = webhooks
  }

  watchRecords(records: Records): void {
    this.#records = records
  }

  #countsOf(rule: string): RuleCounts {
    const counts = this.#checks.get(rule)
    if (counts !== undefined) return counts
    if (this.#checks.size >= RULE_LABELS_MAX && rule !== OTHER_RULES) return this.#countsOf(OTHER_RULES)
    const fresh = { allowed: 0, refused: 0, shadow_refused: 0 }
    this.#checks.set(rule, fresh)
    return fresh
  }

  #registerChecks(): void {
    const help = 'Decisions, by the rule that each reports; shadow_refused counts shadow rules that would have refused.'
    const checks = this.#checks
    this.#register(
      new Counter({
        name: 'sluice_checks_total',
        help,
        labelNames: ['rule', 'result'],
        registers: [],
        collect() {
          this.reset()
          for (const [rule, counts] of checks) {
            for (const [result, count] of Object.entries(counts)) if (count > 0) this.inc({ rule, result }, count)
          }
        },
      }),
    )
    const sources = this.#sources
    this.#register(
      new Counter({
        name: 'sluice_decisions_total',
        help: 'Decisions, by who made them: the store, a lease, this node alone, or on_fail.',
        labelNames: ['source'],
        registers: [],
        collect() {
          this.reset()
          for (const [source, count] of Object.entries(sources)) this.inc({ source }, count)
        },
      }),
    )
    this.#registerTally('sluice_decision_seconds', 'Time from a valid request to its decision.', this.#decisionSeconds)
    registerKept(this.registry, this.kept)
  }

  #registerStore(): void {
    this.#countsByCode('sluice_store_errors_total', 'Store calls that failed, by error code.', this.#storeErrors)
    this.#registerTally(
      'sluice_store_seconds',
      'Round trips to Redis; nothing for the memory store.',
      this.#storeSeconds,
    )
    this.#registerTally('sluice_batch_takes', 'Requests that went to Redis in one round trip.', this.#batchTakes)
    const stat = (name: string) => () => this.#storeStats()[name] ?? 0
    this.#gauge('sluice_leases', 'sum', 'Leases held by this node.', stat('leases'))
    this.#counter('sluice_leases_dropped_total', 'Leases that went back early to make room.', stat('leases_dropped'))
    this.#counter('sluice_scattered_total', 'Checks that concerned several slots or servers.', stat('scattered'))
    this.#counter('sluice_taken_back_total', 'Takes undone because another place refused.', stat('taken_back'))
    this.#counter('sluice_store_dropped_total', 'Checks not sent: too many wait for Redis.', stat('dropped'))
    this.#gauge(
      'sluice_unsynced_units',
      'sum',
      'Units of approximate rules that Redis has not acknowledged.',
      stat('unsynced'),
    )
    this.#counter('sluice_syncs_total', 'Syncs of approximate rules that Redis has answered.', stat('syncs'))
    this.#counter('sluice_syncs_over_total', 'Syncs that found more used than the limit.', stat('syncs_over'))
    this.#counter('sluice_syncs_lost_total', 'Syncs that were not answered in time.', stat('syncs_lost'))
    this.#gauge(
      'sluice_store_left_alone',
      'max',
      'Servers of Redis that are not asked, because they failed or for a drill.',
      stat('breaker_open'),
    )
    this.#counter('sluice_store_timeouts_total', 'Checks that Redis did not answer in time.', stat('timeouts'))
    this.#counter(
      'sluice_late_replies_total',
      'Answers of Redis that came too late and were settled.',
      stat('late_replies'),
    )
    this.#gauge('sluice_keys', 'sum', 'Keys held in memory.', () => this.#storeStats().keys ?? 0)
    this.#counter('sluice_overflowed_total', 'Checks of new keys that shared an overflow bucket.', () => {
      return this.#storeStats().overflowed ?? 0
    })
  }

  #registerRegion(): void {
    const stat = (name: string, per = 1) => {
      return () => (this.#storeStats()[name] ?? 0) / per
    }
    this.#gauge(
      'sluice_region_home_share',
      'first',
      'What this region has of each limit for good.',
      stat('region_home_share'),
    )
    this.#gauge('sluice_region_pool_share', 'first', 'What all regions lease of each limit.', stat('region_pool_share'))
    this.#counter('sluice_region_home_units_total', 'Units that homes have paid.', stat('region_home_units'))
    this.#counter('sluice_region_borrowed_units_total', 'Units that pools have paid.', stat('region_borrowed_units'))
    this.#counter('sluice_region_asked_total', 'Checks that had to ask the global Redis.', stat('region_asked'))
    this.#gauge('sluice_region_leases', 'sum', 'Leases of pools held by this node.', stat('region_leases'))
    this.#gauge('sluice_region_cut_off', 'max', '1 while the global Redis does not answer.', stat('region_cut_off'))
    this.#gauge(
      'sluice_region_lag_seconds',
      'max',
      'How long the last answer of the global Redis took, or for how long there was none.',
      stat('region_lag_ms', 1000),
    )
    this.#gauge(
      'sluice_region_clock_difference_seconds',
      'first',
      'How far the clock of the global Redis is ahead of that of the region.',
      stat('region_clock_difference_ms', 1000),
    )
    this.#gauge(
      'sluice_region_window_excess',
      'max',
      'Share of its limit by which a window may exceed it, because clocks differ.',
      stat('region_window_excess'),
    )
  }

  /** By rule, because a global rule always has the hottest key of all; there are never more series than hot keys. */
  #registerHotKeys(): void {
    this.#gauge('sluice_hot_keys', 'max', 'Keys that get one check of a hundred or more.', () => this.#hotKeys().length)
    const hotKeys = () => this.#hotKeys()
    this.#register(
      new Gauge({
        name: 'sluice_hottest_key_checks_per_second',
        aggregator: 'sum', // exact for a key that is hot in every worker, an upper bound for others
        help: 'Checks of the hottest key of each rule that has one, estimated.',
        labelNames: ['rule'],
        registers: [],
        collect() {
          this.reset()
          const coolestFirst = [...hotKeys()].reverse()
          for (const { ruleId: rule, checksPerSecond } of coolestFirst) this.set({ rule }, checksPerSecond)
        },
      }),
    )
  }

  #registerRules(): void {
    this.#gauge(
      'sluice_rules_version',
      'min',
      'Version of the rules in force; grows with each change.',
      () => this.#rules().version,
    )
    this.#gauge(
      'sluice_rules_valid',
      'min',
      '0 while the rules of the source are wrong and older ones in force.',
      () => {
        return this.#rules().valid ? 1 : 0
      },
    )
    this.#gauge(
      'sluice_rules_age_seconds',
      'max',
      'Time since the rules in force were last known to be those of their source.',
      () => this.#rules().ageSeconds,
    )
    this.#registerTally(
      'sluice_rules_propagation_seconds',
      'Time from a change of the rules in the database to its coming into force here.',
      this.#rulesSeconds,
    )
    const info = new Gauge({
      name: 'sluice_build_info',
      help: 'Always 1; the labels tell what runs.',
      labelNames: ['version', 'node'],
      aggregator: 'first',
      registers: [],
    })
    info.set({ version: VERSION, node: process.version }, 1)
    this.#register(info)
  }

  #registerAccess(): void {
    this.#countsByCode(
      'sluice_forward_auth_errors_total',
      'Forward auth requests of proxies that are not trusted or set up wrongly, by problem code.',
      this.#forwardAuthErrors,
    )
    this.#counter('sluice_tokens_refused_total', 'Requests with a token that is not known, revoked or expired.', () => {
      return this.tokensRefused
    })
    this.#gauge('sluice_killed_rules', 'max', 'Rules that the kill switch has taken out of force, one by one.', () => {
      return this.#records?.killSwitch.kills.filter(({ ruleId }) => ruleId !== null).length ?? 0
    })
    this.#gauge('sluice_enforcement_off', 'max', '1 while the kill switch has taken all rules out of force.', () => {
      return this.#records?.killSwitch.everything ? 1 : 0
    })
    this.#counter('sluice_webhooks_delivered_total', 'Events that a webhook has taken.', () => this.#webhooks.delivered)
    this.#counter('sluice_webhooks_dropped_total', 'Events that a webhook never took, or had no room for.', () => {
      return this.#webhooks.dropped
    })
    this.#counter('sluice_violations_written_total', 'Refusals written to the database.', () => {
      return this.#records?.violations?.written ?? 0
    })
    this.#counter('sluice_violations_dropped_total', 'Refusals that were not written, because too many came.', () => {
      return this.#records?.violations?.dropped ?? 0
    })
  }

  /** `aggregator` makes one value for the node of those of its workers. */
  #gauge(name: string, aggregator: Aggregator, help: string, read: () => number): void {
    this.#register(
      new Gauge({
        name,
        aggregator,
        help,
        registers: [],
        collect() {
          this.set(read())
        },
      }),
    )
  }

  #counter(name: string, help: string, read: () => number): void {
    this.#register(
      new Counter({
        name,
        help,
        registers: [],
        collect() {
          this.reset()
          this.inc(read())
        },
      }),
    )
  }

  #countsByCode(name: string, help: string, counts: ReadonlyMap<string, number>): void {
    this.#register(
      new Counter({
        name,
        help,
        labelNames: ['code'],
        registers: [],
        collect() {
          this.reset()
          for (const [code, count] of counts) this.inc({ code }, count)
        },
      }),
    )
  }

  /** A registry asks its metrics for nothing but `get`, so anything that has one will do. */
  #registerTally(name: string, help: string, tally: Tally): void {
    const about = { name, help, type: 'histogram', aggregator: 'sum' }
    const metric = { ...about, get: () => ({ ...about, values: tally.values(name) }) }
    this.#register(metric as unknown as Histogram)
  }

  #register(metric: Counter | Gauge | Histogram): void {
    this.registry.registerMetric(metric as Counter)
  }
}
