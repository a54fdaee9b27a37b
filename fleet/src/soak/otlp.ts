// Sends traces and metrics of a gateway and of a service node behind it to the real OpenTelemetry collector: every
// request is one trace over both, and the metrics equal the number of requests sent.

import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startRedis } from 'sluice/testing'
import type { Guarantee } from '../guarantees.ts'
import { postJson } from '../http-client.ts'
import { ServiceNode } from '../service-node.ts'
import { buildCollector, type Collector, hasGo, startCollector } from './collector.ts'

/** Strict: every check is a round trip to Redis. */
const RULE = { rule_id: 'user', scope: 'per_user', limit: 1_000_000, window: '1h', consistency: 'strict' }
const IN_FLIGHT = 10
const CHECK_SPAN = 'POST /api/v1/rate-limit/check'

export async function otlp(requests: number): Promise<Guarantee[]> {
  if (!hasGo()) {
    process.stdout.write('  skipped: Go is not installed, and the OpenTelemetry collector is built with it\n')
    return []
  }
  const collector = await startCollector(await buildCollector())
  try {
    await sendChecks(collector.url, requests)
    await collector.stop()
    return [...traceGuarantees(collector, requests), metricGuarantee(collector, requests)]
  } finally {
    await collector.stop()
  }
}

/** Drains the nodes, so that all spans are sent. */
async function sendChecks(url: string, requests: number): Promise<void> {
  const redis = await startRedis()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-otlp-'))
  const [rules, noRules] = [join(folder, 'rules.json'), join(folder, 'none.json')]
  writeFileSync(rules, JSON.stringify([RULE]))
  writeFileSync(noRules, '[]')
  const telemetry = ['--otlp-endpoint', url, '--trace-sample', '1', '--otlp-metrics-seconds', '1', '--drain-ms', '0']
  const onRedis = ['--redis', redis.url, '--store-deadline-ms', '5000', '--rules', rules]
  const node = await ServiceNode.start([...telemetry, ...onRedis, '--data-dir', join(folder, 'a')])
  const proxy = ['--rules', noRules, '--upstream', node.address.origin, '--listen', '127.0.0.1:0']
  const gateway = await ServiceNode.start([...telemetry, ...proxy, '--data-dir', join(folder, 'b')], {
    command: 'gateway',
  })
  try {
    for (let sent = 0; sent < requests; sent += IN_FLIGHT) {
      const batch = Array.from({ length: Math.min(IN_FLIGHT, requests - sent) }, (_, index) => index)
      await Promise.all(batch.map((index) => postJson(gateway.checks, { client_id: `user-${index}` })))
    }
  } finally {
    await gateway.drain()
    await node.drain()
    await redis.stop()
  }
}

type Span = { name: string; traceId: string; spanId: string; parentSpanId?: string; attributes?: KeyValue[] }
type KeyValue = { key: string; value: { stringValue?: string; boolValue?: boolean } }
type Traces = { resourceSpans: { scopeSpans: { spans: Span[] }[] }[] }
type Point = { attributes?: KeyValue[]; asDouble?: number }
type Metric = { name: string; sum?: { dataPoints: Point[] } }
type Metrics = { resourceMetrics: { scopeMetrics: { metrics: Metric[] }[] }[] }

function traceGuarantees(collector: Collector, requests: number): Guarantee[] {
  const exported = collector.read('traces') as Traces[]
  const spans = exported.flatMap(({ resourceSpans }) =>
    resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)),
  )
  const byId = new Map(spans.map((span) => [span.spanId, span]))
  const parentOf = (span: Span | undefined) => byId.get(span?.parentSpanId ?? '')
  const whole = spans.filter((span) => {
    const check = parentOf(span)
    const root = parentOf(check)
    const isChain = span.name === 'sluice.store' && check?.name === CHECK_SPAN && root?.name === 'POST /'
    return isChain && !root.parentSpanId && [check, root].every(({ traceId }) => traceId === span.traceId)
  })
  const described = whole.filter((span) => {
    const attributes = JSON.stringify(parentOf(span)?.attributes)
    return attributes.includes('"sluice.rule"') && attributes.includes('"sluice.allowed"')
  })
  const leaked = JSON.stringify(spans).includes('user-1')
  const traces = new Set(spans.map(({ traceId }) => traceId)).size
  return [
    {
      held: whole.length === requests && traces === requests,
      text: `${requests} requests are ${traces} traces; gateway → check → round trip is complete in ${whole.length}`,
    },
    { held: spans.length === requests * 3, text: `3 spans per request, none twice: ${spans.length}` },
    { held: described.length === requests, text: `rule and result are attributes of ${described.length} checks` },
    { held: !leaked, text: 'no span contains a client key' },
  ]
}

/** The last export has the total. */
function metricGuarantee(collector: Collector, requests: number): Guarantee {
  const exported = collector.read('metrics') as Metrics[]
  const totals = exported.flatMap(({ resourceMetrics }) =>
    resourceMetrics.flatMap(({ scopeMetrics }) =>
      scopeMetrics.flatMap(({ metrics }) => metrics.filter(({ name }) => name === 'sluice_checks_total')),
    ),
  )
  const points = totals.flatMap(({ sum }) => sum?.dataPoints ?? [])
  const ofRule = points.filter(({ attributes }) => JSON.stringify(attributes).includes(`"${RULE.rule_id}"`))
  const counted = Math.max(0, ...ofRule.map(({ asDouble = 0 }) => asDouble))
  const text = `sluice_checks_total{rule="user"} reached ${counted} in ${exported.length} exports`
  return { held: counted === requests, text }
}
