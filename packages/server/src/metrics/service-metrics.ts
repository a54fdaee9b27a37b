// Metrics of checks, rules and administration: the counts behind them, and how each is exposed.

import type { Registry } from 'prom-client'
import { type HotKey, POLICY_REASONS, type PolicyReason, type Rule, type Source } from 'sluice'
import { VERSION } from '../package-facts.ts'
import { BoundedCounts, OTHER } from './bounded-counts.ts'
import { FastHistogram } from './fast-histogram.ts'
import {
  type CounterDefinition,
  type GaugeDefinition,
  registerCounters,
  registerGauges,
  registerHistogram,
} from './registration.ts'

/** Upper bounds of the buckets of decision times. */
export const DECISION_SECONDS: readonly number[] = [
  1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.05, 0.25, 1,
]
const BATCH_REQUESTS = [1, 2, 5, 10, 20, 50, 100, 200]
const PROPAGATION_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/** Caps on series. */
const ENDPOINTS_MAX = 1000
const LIMITS_MAX = 10_000
/** Beyond this, rules share the label `other`. */
export const RULES_MAX = 10_000
/** Rules whose series of on_fail exist before their first count: `rate` misses the first count of a new series. */
const FAILING_RULES_MAX = 1000
/** Label of checks without a rule, and of rules without a pattern. */
export const NO_RULE = 'none'

export type RuleCounts = {
  allowed: number
  refused: number
  shadowRefused: number
  /** Admitted and refused by `on_fail`; part of `allowed` and `refused`. */
  failOpen: number
  failClosed: number
}

/** Totals of the checks of a process, for webhooks. `byPolicy`: decided by `on_fail`; `slow`: in more than 5 ms. */
export type CheckTotals = {
  readonly decided: number
  readonly refused: number
  readonly byPolicy: number
  readonly slow: number
}

/** Totals of the units of leases of a process: drift is the share of charged units that expired. */
export type UnitTotals = { readonly unitsCharged: number; readonly unitsExpired: number }

/** Objective of the latency SLO; a bound of the histogram. */
const SLOW_SECONDS = 5e-3

/** State of the active rules. `ageSeconds` is the time since the rule source last confirmed them. */
export type RulesFacts = { readonly version: number; readonly valid: boolean; readonly ageSeconds: number }

/** Totals of a queue that writes to a database or to Redis. */
export type WriteTotals = { readonly written: number; readonly dropped: number }
export type DeliveryTotals = { readonly delivered: number; readonly dropped: number }

export type AdminFacts = {
  readonly killSwitch: { readonly kills: readonly { readonly ruleId: string | null }[]; readonly everything: boolean }
}

/** Totals of the checks that `on_fail` decided, by reason. */
export type PolicyReasonCounts = Readonly<Partial<Record<PolicyReason, number>>>

export class ServiceCounts {
  readonly rules: Map<string, RuleCounts> = new Map()
  /** Refusals of rules that were removed. */
  #forgottenRefused = 0
  /** Active rules with `on_fail: open` (below: `closed`), capped; their series exist from the start. */
  failOpenRules: readonly string[] = []
  failClosedRules: readonly string[] = []
  readonly sources: Record<Source, number> = { store: 0, lease: 0, local: 0, policy: 0 }
  /** Checks that `on_fail` decided, by `reason source`. Those with the source policy exist from the start. */
  readonly policyReasons: Map<string, number> = new Map(POLICY_REASONS.map((reason) => [`${reason} policy`, 0]))
  readonly refusedByEndpoint: BoundedCounts = new BoundedCounts(ENDPOINTS_MAX)
  /** By `limit rule`: names of limits have no spaces. */
  readonly refusedByLimit: BoundedCounts = new BoundedCounts(LIMITS_MAX)
  readonly forwardAuthErrors: Map<string, number> = new Map()
  /** Caps on connections, by port. */
  readonly ports: { readonly port: string; readonly refused: Readonly<Record<string, number>> }[] = []
  /** Requests with an unknown, revoked or expired token. */
  tokensRejected = 0
  /** Receipts evicted early because the cap was reached. */
  receiptsDropped = 0
  /** Receipts that Redis did not confirm in time. */
  receiptsUnconfirmed = 0
  readonly decisionSeconds: FastHistogram = new FastHistogram(DECISION_SECONDS)
  readonly batchRequests: FastHistogram = new FastHistogram(BATCH_REQUESTS)
  readonly propagationSeconds: FastHistogram = new FastHistogram(PROPAGATION_SECONDS)
  decisionRecords: WriteTotals = { written: 0, dropped: 0 }
  webhooks: DeliveryTotals = { delivered: 0, dropped: 0 }
  admin: AdminFacts = { killSwitch: { kills: [], everything: false } }
  rulesFacts: () => RulesFacts = () => ({ version: 0, valid: true, ageSeconds: 0 })
  hotKeys: () => readonly HotKey[] = () => []
  unknownContent: () => Readonly<Record<string, number>> = () => ({})

  /** Makes room for the labels of the active rules. */
  activate(rules: readonly Rule[]): void {
    const named = (onFail: Rule['on_fail']) =>
      rules.filter(({ on_fail }) => on_fail === onFail).map(({ rule_id }) => rule_id)
    this.failOpenRules = named('open').slice(0, FAILING_RULES_MAX)
    this.failClosedRules = named('closed').slice(0, FAILING_RULES_MAX)
    const ids = new Set([NO_RULE, OTHER, ...rules.map(({ rule_id }) => rule_id)])
    const patterns = new Set([NO_RULE, ...rules.map(({ endpoint_pattern }) => endpoint_pattern)])
    this.refusedByEndpoint.keep((pattern) => patterns.has(pattern))
    this.refusedByLimit.keep((name) => ids.has(limitLabels(name).rule))
    if (this.rules.size <= RULES_MAX / 2) return
    for (const [rule, { refused }] of this.rules) {
      if (ids.has(rule)) continue
      this.rules.delete(rule)
      this.#forgottenRefused += refused
    }
  }

  decidedByPolicy(reason: PolicyReason, source: Source): void {
    const labels = `${reason} ${source}`
    this.policyReasons.set(labels, (this.policyReasons.get(labels) ?? 0) + 1)
  }

  policyReasonCounts(): PolicyReasonCounts {
    const counts: Record<string, number> = {}
    for (const [labels, count] of this.policyReasons) {
      const [reason = ''] = labels.split(' ')
      if (count > 0) counts[reason] = (counts[reason] ?? 0) + count
    }
    return counts
  }

  checkTotals(): CheckTotals {
    let refused = this.#forgottenRefused
    for (const counts of this.rules.values()) refused += counts.refused
    const { store, lease, local, policy } = this.sources
    const slow = this.decisionSeconds.above(SLOW_SECONDS)
    return { decided: store + lease + local + policy, refused, byPolicy: policy, slow }
  }
}

export function registerService(registry: Registry, counts: ServiceCounts): void {
  registerCounters(registry, () => counts, COUNTERS)
  registerGauges(registry, () => counts, GAUGES)
  for (const { name, help, histogram } of HISTOGRAMS) registerHistogram(registry, name, help, histogram(counts))
}

const COUNTERS: readonly CounterDefinition<ServiceCounts>[] = [
  {
    name: 'sluice_refused_connections_total',
    help: 'Connections closed on arrival, by port and by the cap that was reached: address or port.',
    labels: ['port', 'cap'],
    read: ({ ports }) =>
      ports.flatMap(({ port, refused }) =>
        Object.entries(refused).map(([cap, count]) => [{ port, cap }, count] as const),
      ),
  },
  {
    name: 'sluice_checks_total',
    help: 'Checks, by the rule that the decision reports and by result.',
    labels: ['rule', 'result'],
    read: ({ rules }) =>
      [...rules].flatMap(([rule, { allowed, refused }]) => [
        ...(allowed > 0 ? [[{ rule, result: 'allowed' }, allowed] as const] : []),
        ...(refused > 0 ? [[{ rule, result: 'refused' }, refused] as const] : []),
      ]),
  },
  {
    name: 'sluice_policy_decisions_total',
    help: 'Checks that on_fail decided, for at least one limit, by reason and by the source of the decision.',
    labels: ['reason', 'source'],
    read: ({ policyReasons }) =>
      [...policyReasons].map(([labels, count]) => {
        const [reason = '', source = ''] = labels.split(' ')
        return [{ reason, source }, count]
      }),
  },
  {
    name: 'sluice_shadow_refused_total',
    help: 'Checks that a shadow rule would have refused.',
    labels: ['rule'],
    read: ({ rules }) => perRule(rules, ({ shadowRefused }) => shadowRefused),
  },
  {
    name: 'sluice_refused_total',
    help: 'Refused checks, by the most specific endpoint pattern of the rules that matched.',
    labels: ['endpoint'],
    read: ({ refusedByEndpoint }) => refusedByEndpoint.entries().map(([endpoint, count]) => [{ endpoint }, count]),
  },
  {
    name: 'sluice_limit_refused_total',
    help: 'Refused checks, by the limit that the decision reports.',
    labels: ['rule', 'limit'],
    read: ({ refusedByLimit }) => refusedByLimit.entries().map(([name, count]) => [limitLabels(name), count]),
  },
  {
    name: 'sluice_fail_open_total',
    help: 'Checks that on_fail admitted because the store did not answer.',
    labels: ['rule'],
    read: ({ rules, failOpenRules }) => perRule(rules, ({ failOpen }) => failOpen, failOpenRules),
  },
  {
    name: 'sluice_fail_closed_total',
    help: 'Checks that on_fail refused because the store did not answer.',
    labels: ['rule'],
    read: ({ rules, failClosedRules }) => perRule(rules, ({ failClosed }) => failClosed, failClosedRules),
  },
  {
    name: 'sluice_decisions_total',
    help: 'Decisions, by source: the store, a lease, this node alone, or on_fail.',
    labels: ['source'],
    read: ({ sources }) => Object.entries(sources).map(([source, count]) => [{ source }, count] as const),
  },
  {
    name: 'sluice_forward_auth_errors_total',
    help: 'Forward auth requests from untrusted or misconfigured proxies, by problem code.',
    labels: ['code'],
    read: ({ forwardAuthErrors }) => perCode(forwardAuthErrors),
  },
  {
    name: 'sluice_tokens_rejected_total',
    help: 'Requests with an unknown, revoked or expired token.',
    read: ({ tokensRejected }) => tokensRejected,
  },
  {
    name: 'sluice_receipts_dropped_total',
    help: 'Receipts evicted from memory early; their requests cannot be refunded.',
    read: ({ receiptsDropped }) => receiptsDropped,
  },
  {
    name: 'sluice_receipts_unconfirmed_total',
    help: 'Receipts that Redis did not confirm in time.',
    read: ({ receiptsUnconfirmed }) => receiptsUnconfirmed,
  },
  {
    name: 'sluice_decision_records_written_total',
    help: 'Decision records written to Redis or the database for all nodes.',
    read: ({ decisionRecords }) => decisionRecords.written,
  },
  {
    name: 'sluice_decision_records_dropped_total',
    help: 'Decision records dropped because of the rate cap or a write failure.',
    read: ({ decisionRecords }) => decisionRecords.dropped,
  },
  {
    name: 'sluice_webhooks_delivered_total',
    help: 'Webhook events delivered.',
    read: ({ webhooks }) => webhooks.delivered,
  },
  {
    name: 'sluice_webhooks_dropped_total',
    help: 'Webhook events dropped after all retries, or because the queue was full.',
    read: ({ webhooks }) => webhooks.dropped,
  },
]

const GAUGES: readonly GaugeDefinition<ServiceCounts>[] = [
  {
    name: 'sluice_hot_keys',
    help: 'Keys that receive at least 1 % of the checks.',
    aggregator: 'max',
    read: ({ hotKeys }) => hotKeys().length,
  },
  {
    name: 'sluice_hottest_key_checks_per_second',
    help: 'Estimated checks per second of the hottest key of each rule that has a hot key.',
    labels: ['rule'], // per rule, because the one key of a global rule is always the hottest overall
    aggregator: 'sum', // exact for a key that is hot in every worker, an upper bound for others
    read: ({ hotKeys }) => hottestByRule(hotKeys()).map(([rule, rate]) => [{ rule }, rate] as const),
  },
  {
    name: 'sluice_rules_version',
    help: 'Version of the active rules.',
    aggregator: 'min',
    read: ({ rulesFacts }) => rulesFacts().version,
  },
  {
    name: 'sluice_rules_valid',
    help: '0 while the rules of the source are invalid and the last good rules stay active.',
    aggregator: 'min',
    read: ({ rulesFacts }) => (rulesFacts().valid ? 1 : 0),
  },
  {
    name: 'sluice_content_not_understood',
    help: 'Rows of the database that a newer version wrote and this one ignores, by table.',
    labels: ['where'],
    aggregator: 'max',
    read: ({ unknownContent }) => Object.entries(unknownContent()).map(([where, count]) => [{ where }, count] as const),
  },
  {
    name: 'sluice_rules_age_seconds',
    help: 'Time since the rule source last confirmed the active rules.',
    aggregator: 'max',
    read: ({ rulesFacts }) => rulesFacts().ageSeconds,
  },
  {
    name: 'sluice_disabled_rules',
    help: 'Rules that the kill switch has disabled individually.',
    aggregator: 'max',
    read: ({ admin }) => admin.killSwitch.kills.filter(({ ruleId }) => ruleId !== null).length,
  },
  {
    name: 'sluice_enforcement_disabled',
    help: '1 while the kill switch disables all rules.',
    aggregator: 'max',
    read: ({ admin }) => (admin.killSwitch.everything ? 1 : 0),
  },
  {
    name: 'sluice_build_info',
    help: 'Always 1; the labels are the versions of Sluice and Node.js.',
    labels: ['version', 'nodejs'],
    aggregator: 'first',
    read: () => [[{ version: VERSION, nodejs: process.version }, 1]],
  },
]

type HistogramDefinition = {
  readonly name: string
  readonly help: string
  readonly histogram: (counts: ServiceCounts) => FastHistogram
}

const HISTOGRAMS: readonly HistogramDefinition[] = [
  {
    name: 'sluice_decision_duration_seconds',
    help: 'Time from a valid request to its decision.',
    histogram: ({ decisionSeconds }) => decisionSeconds,
  },
  {
    name: 'sluice_store_batch_requests',
    help: 'Requests sent to Redis in one round trip.',
    histogram: ({ batchRequests }) => batchRequests,
  },
  {
    name: 'sluice_rules_propagation_seconds',
    help: 'Time from a rule change in the database until it was active on this node.',
    histogram: ({ propagationSeconds }) => propagationSeconds,
  },
]

/** Series for rules with a count, and for the `shown` ones. */
function perRule(
  rules: ReadonlyMap<string, RuleCounts>,
  read: (counts: RuleCounts) => number,
  shown: readonly string[] = [],
): (readonly [{ rule: string }, number])[] {
  const counts = new Map(shown.map((rule) => [rule, 0]))
  for (const [rule, all] of rules) if (read(all) > 0) counts.set(rule, read(all))
  return [...counts].map(([rule, count]) => [{ rule }, count] as const)
}

/** Labels of an entry of `refusedByLimit`. */
function limitLabels(name: string): { rule: string; limit: string } {
  const end = name.indexOf(' ')
  return end < 0 ? { rule: name, limit: name } : { rule: name.slice(end + 1), limit: name.slice(0, end) }
}

function perCode(counts: ReadonlyMap<string, number>): (readonly [{ code: string }, number])[] {
  return [...counts].map(([code, count]) => [{ code }, count] as const)
}

/** `hotKeys` are sorted, hottest first. */
function hottestByRule(hotKeys: readonly HotKey[]): (readonly [rule: string, checksPerSecond: number])[] {
  const rates = [...hotKeys].reverse().map(({ ruleId, checksPerSecond }) => [ruleId, checksPerSecond] as const)
  return [...new Map(rates)]
}
