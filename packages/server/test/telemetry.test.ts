// Spans and metrics of the service, as an OTLP receiver in this process gets them. Closing a node flushes them, so no
// test waits for an interval. The real OpenTelemetry collector runs in `npm run soak -- otlp`.

import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { AUTH_PATH } from '../src/http/routes/auth.ts'
import { Metrics } from '../src/metrics/metrics.ts'
import { readCommand } from '../src/settings/command-line.ts'
import type { Settings } from '../src/settings/settings.ts'
import { loadPackages } from '../src/telemetry/packages.ts'
import { openTelemetry } from '../src/telemetry/telemetry.ts'
import { closedPort, type SentSpan, startReceiver, startSilentReceiver } from './otlp-receiver.ts'
import { BATCH, CHECK, captureLog, defaults, serveFile } from './service.ts'

const RULES = `
- { rule_id: two, limit: 2, window: 1d, scope: per_user, algorithm: fixed_window }
`
const SECRET = 'alice-secret-1'
const TRACE = '0af7651916cd43dd8448eb211c80319c'
const CALLER = 'b7ad6b7169203331'
const SERVER_KIND = 2
const CLIENT_KIND = 3

type Node = Awaited<ReturnType<typeof serveFile>>

function serveTraced(receiver: string, settings: Partial<Settings> = {}): Promise<Node> {
  return serveFile(RULES, { otlpEndpoint: receiver, traceSample: 1, otlpMetricsSeconds: 0, ...settings })
}

function checkWith({ send }: Node, headers: Record<string, string>, body: object = { client_id: 'a' }) {
  const all = { 'content-type': 'application/json', ...headers }
  return send(CHECK, { method: 'POST', headers: all, body: JSON.stringify(body) })
}

async function freshRedis(): Promise<string> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return redis.url
}

function named(spans: readonly SentSpan[], name: string): SentSpan[] {
  return spans.filter((span) => span.name === name)
}

describe('spans', () => {
  test('a check in memory is one server span with its rule, result, source, version, route and status', async () => {
    const receiver = await startReceiver()
    const node = await serveTraced(receiver.url)
    for (let sent = 0; sent < 3; sent += 1) await node.check({ client_id: SECRET })
    await node.close()
    const [first, , third] = receiver.spans
    expect(receiver.spans).toHaveLength(3)
    expect(first).toMatchObject({ name: `POST ${CHECK}`, kind: SERVER_KIND })
    expect(first).not.toHaveProperty('parentSpanId')
    expect(first?.attributes).toEqual({
      'http.request.method': 'POST',
      'http.route': CHECK,
      'http.response.status_code': 200,
      'sluice.rule': 'two',
      'sluice.allowed': true,
      'sluice.source': 'store',
      'sluice.version': 1,
    })
    expect(third?.attributes).toMatchObject({ 'sluice.allowed': false })
    expect(BigInt(first?.endTimeUnixNano ?? 0)).toBeGreaterThan(BigInt(first?.startTimeUnixNano ?? 0))
    expect(receiver.resources[0]).toMatchObject({
      'service.name': 'sluice',
      'service.instance.id': expect.stringContaining(`:${process.pid}`),
    })
    expect(JSON.stringify(receiver.spans)).not.toContain(SECRET)
  })

  test('a check on Redis has a child span for the round trip, within the time of its parent', async () => {
    const receiver = await startReceiver()
    const node = await serveTraced(receiver.url, { redis: await freshRedis(), storeDeadlineMs: 5000 })
    await node.check({ client_id: SECRET })
    await node.close()
    const [parent] = named(receiver.spans, `POST ${CHECK}`)
    const [child] = named(receiver.spans, 'sluice.store')
    expect(receiver.spans).toHaveLength(2)
    expect(child).toMatchObject({ kind: CLIENT_KIND, traceId: parent?.traceId, parentSpanId: parent?.spanId })
    expect(child?.attributes).toEqual({
      ...{ 'sluice.rule': 'two', 'sluice.allowed': true, 'sluice.source': 'store', 'sluice.version': 1 },
    })
    expect(BigInt(child?.startTimeUnixNano ?? 0)).toBeGreaterThanOrEqual(BigInt(parent?.startTimeUnixNano ?? 0))
    expect(BigInt(child?.endTimeUnixNano ?? 0)).toBeLessThanOrEqual(BigInt(parent?.endTimeUnixNano ?? 0))
    expect(JSON.stringify(receiver.spans)).not.toContain(SECRET)
  })

  test('a batch is one span with the number of checks and refusals, and one child per round trip', async () => {
    const receiver = await startReceiver()
    const node = await serveTraced(receiver.url, { redis: await freshRedis(), storeDeadlineMs: 5000 })
    await node.post(BATCH, { checks: Array(3).fill({ client_id: 'a' }) })
    await node.close()
    const [batch] = named(receiver.spans, `POST ${BATCH}`)
    expect(batch?.attributes).toMatchObject({ 'sluice.checks': 3, 'sluice.refused': 1 })
    const children = named(receiver.spans, 'sluice.store')
    expect(children.map(({ parentSpanId }) => parentSpanId)).toEqual(Array(3).fill(batch?.spanId))
  })

  test('forward auth is traced, and so are requests that are rejected before a decision', async () => {
    const receiver = await startReceiver()
    const node = await serveTraced(receiver.url)
    await node.get(AUTH_PATH)
    await node.post(CHECK, '{"client_id":')
    await node.get('/healthz')
    await node.close()
    expect(receiver.spans.map(({ name, status, attributes }) => ({ name, code: status.code, attributes }))).toEqual([
      {
        name: `GET ${AUTH_PATH}`,
        code: 2,
        attributes: {
          ...{ 'http.request.method': 'GET', 'http.route': AUTH_PATH, 'http.response.status_code': 500 },
        },
      },
      {
        name: `POST ${CHECK}`,
        code: 0,
        attributes: { 'http.request.method': 'POST', 'http.route': CHECK, 'http.response.status_code': 400 },
      },
    ])
  })

  test('the name and attributes of the service can be set by the variables of OpenTelemetry', async () => {
    vi.stubEnv('OTEL_SERVICE_NAME', 'limits')
    vi.stubEnv('OTEL_RESOURCE_ATTRIBUTES', 'deployment.environment.name=test')
    const receiver = await startReceiver()
    const node = await serveTraced(receiver.url, { otlpMetricsSeconds: 60 })
    await node.check({})
    await node.close()
    const expected = { 'service.name': 'limits', 'deployment.environment.name': 'test' }
    expect(receiver.resources).toMatchObject([expected, expected])
  })

  test('headers given in the settings reach the receiver, and paths are appended to the endpoint', async () => {
    const receiver = await startReceiver()
    const settings = { otlpHeaders: { authorization: 'Bearer x' }, otlpMetricsSeconds: 60 }
    const node = await serveTraced(`${receiver.url}/otlp`, settings)
    await node.check({})
    await node.close()
    expect(receiver.requests.map(({ url }) => url).sort()).toEqual(['/otlp/v1/metrics', '/otlp/v1/traces'])
    for (const { headers } of receiver.requests)
      expect(headers).toMatchObject({ authorization: 'Bearer x', 'content-type': 'application/json' })
  })
})

describe('trace context', () => {
  test('a traceparent of the caller is continued, with its tracestate', async () => {
    const receiver = await startReceiver()
    const node = await serveTraced(receiver.url, { traceSample: 0 })
    await checkWith(node, { traceparent: `00-${TRACE}-${CALLER}-01`, tracestate: 'vendor=1' })
    await node.close()
    expect(receiver.spans).toHaveLength(1)
    expect(receiver.spans[0]).toMatchObject({ traceId: TRACE, parentSpanId: CALLER, traceState: 'vendor=1' })
  })

  test.each([
    ['not sampled by the caller', { traceparent: `00-${TRACE}-${CALLER}-00` }, 1, 0],
    ['no caller and a share of 0', {}, 0, 0],
    ['no caller and a share of 1', {}, 1, 1],
    ['sampled by the caller and a share of 0', { traceparent: `00-${TRACE}-${CALLER}-01` }, 0, 1],
    ['a later version of the header', { traceparent: `01-${TRACE}-${CALLER}-01-more` }, 0, 1],
  ])('%s', async (_name, headers: Record<string, string>, traceSample, spans) => {
    const receiver = await startReceiver()
    const node = await serveTraced(receiver.url, { traceSample })
    expect(await checkWith(node, headers)).toMatchObject({ status: 200 })
    await node.close()
    expect(receiver.spans).toHaveLength(spans)
  })

  test.each([
    ['more than version 00 has', `00-${TRACE}-${CALLER}-01-more`],
    ['upper case', `00-${TRACE.toUpperCase()}-${CALLER}-01`],
    ['no trace id', `00-${'0'.repeat(32)}-${CALLER}-01`],
    ['no span id', `00-${TRACE}-${'0'.repeat(16)}-01`],
    ['an invalid version', `ff-${TRACE}-${CALLER}-01`],
    ['two values', `00-${TRACE}-${CALLER}-01, 00-${TRACE}-${CALLER}-01`],
    ['4000 characters', 'x'.repeat(4000)],
  ])('a traceparent with %s starts a new trace', async (_name, traceparent) => {
    const receiver = await startReceiver()
    const node = await serveTraced(receiver.url)
    await checkWith(node, { traceparent, tracestate: 'vendor=1' })
    await node.close()
    expect(receiver.spans).toHaveLength(1)
    expect(receiver.spans[0]).not.toHaveProperty('parentSpanId')
    expect(receiver.spans[0]?.traceId).not.toBe(TRACE)
    expect(receiver.spans[0]?.traceState ?? '').toBe('')
  })
})

describe('metrics over OTLP', () => {
  test('have the names, labels and values of /metrics, and no metric is missing', async () => {
    const receiver = await startReceiver()
    const node = await serveTraced(receiver.url, { otlpMetricsSeconds: 3600, traceSample: 0 })
    for (let sent = 0; sent < 3; sent += 1) await node.check({ client_id: SECRET })
    const text = String((await node.get('/metrics')).body.text)
    await node.close()
    expect(receiver.exports).toHaveLength(1)
    const metrics = new Map(receiver.exports[0]?.map((metric) => [metric.name, metric]))
    const withSamples = [...text.matchAll(/^# TYPE (sluice_\w+) (\w+)$/gm)].filter(([, name]) =>
      new RegExp(`^${name}(_count)?[ {]`, 'm').test(text),
    )
    for (const [, name = '', type] of withSamples)
      expect(metrics.get(name)?.kind, name).toBe(type === 'counter' ? 'sum' : type)
    expect(metrics.get('sluice_checks_total')?.points).toMatchObject([
      { attributes: { rule: 'two', result: 'allowed' }, asDouble: 2 },
      { attributes: { rule: 'two', result: 'refused' }, asDouble: 1 },
    ])
    const [latency] = metrics.get('sluice_decision_duration_seconds')?.points ?? []
    const counts = latency?.bucketCounts?.map(Number) ?? []
    expect(latency).toMatchObject({ attributes: {}, count: '3' })
    expect(counts).toHaveLength((latency?.explicitBounds?.length ?? 0) + 1)
    expect(counts.reduce((sum, count) => sum + count)).toBe(3)
    expect(latency?.explicitBounds).toEqual([...(latency?.explicitBounds ?? [])].sort((a, b) => a - b))
    expect(BigInt(latency?.timeUnixNano ?? 0)).toBeGreaterThanOrEqual(BigInt(latency?.startTimeUnixNano ?? 0))
    expect(JSON.stringify(receiver.exports)).not.toContain(SECRET)
  })

  test('an outage is logged once, and so is its end; the next export has the totals', async () => {
    const receiver = await startReceiver()
    receiver.status = 503
    const node = await serveTraced(receiver.url, { otlpMetricsSeconds: 1, traceSample: 0 })
    await node.check({})
    const until = (condition: () => boolean) => vi.waitUntil(condition, { timeout: 60_000 })
    await until(() => receiver.requests.length >= 2)
    receiver.status = 200
    await until(() => receiver.exports.length >= 2)
    const events = node.logged.filter(({ event }) => String(event).startsWith('otlp_'))
    const host = new URL(receiver.url).host
    expect(events).toMatchObject([
      { event: 'otlp_export_failed', signal: 'metrics', host, reason: 'status 503' },
      { event: 'otlp_export_recovered', signal: 'metrics', host },
    ])
    expect(receiver.exports[0]?.find(({ name }) => name === 'sluice_checks_total')?.points[0]?.asDouble).toBe(1)
  })
})

describe('a receiver that fails', () => {
  test.each([
    ['refuses connections', closedPort, 'ECONNREFUSED'],
    ['never answers', startSilentReceiver, 'timed out'],
  ])('one that %s affects no check and does not prevent the close', async (_name, start, reason) => {
    const node = await serveTraced(await start(), { otlpMetricsSeconds: 60 })
    for (let sent = 0; sent < 3; sent += 1)
      expect(await node.check({ client_id: `u${sent}` })).toMatchObject({ allowed: true })
    await node.close()
    const failed = node.logged.filter(({ event }) => event === 'otlp_export_failed')
    expect(failed.map(({ signal }) => signal).sort()).toEqual(['metrics', 'traces'])
    expect(failed.map((line) => line.reason)).toEqual([reason, reason])
    expect(node.logged.filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([])
  })

  test('one that rejects the headers is named by its status, and the log contains no header', async () => {
    const receiver = await startReceiver()
    receiver.status = 401
    const node = await serveTraced(receiver.url, { otlpHeaders: { 'api-key': SECRET } })
    await node.check({})
    await node.close()
    expect(node.logged).toContainEqual(
      expect.objectContaining({ event: 'otlp_export_failed', signal: 'traces', reason: 'status 401' }),
    )
    expect(JSON.stringify(node.logged)).not.toContain(SECRET)
  })

  test('spans beyond the queue are dropped and counted, and further requests are not traced', async () => {
    const metrics = new Metrics()
    const settings = { ...defaults(), otlpEndpoint: await startSilentReceiver(), traceSample: 1, otlpMetricsSeconds: 0 }
    const telemetry = await openTelemetry(settings, { metrics, log: captureLog().log })
    onTestFinished(() => telemetry?.close())
    const open = Array.from({ length: 2100 }, () => telemetry?.start('POST', {}))
    for (const span of open) span?.end(200)
    expect(telemetry?.start('POST', {})).toBeUndefined()
    expect(await metrics.scrape()).toContain('sluice_otlp_spans_total{result="dropped"} 53\n')
  })
})

describe('without telemetry', () => {
  test('no package is loaded', async () => {
    const load = vi.fn()
    const deps = { metrics: new Metrics(), log: captureLog().log, load }
    expect(await openTelemetry(defaults(), deps)).toBeUndefined()
    expect(load).not.toHaveBeenCalled()
  })

  test('a missing package is an invalid setting, with the command that installs all of them', async () => {
    const missing = Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' })
    const install = / --otlp-endpoint: install .*: npm install .*@opentelemetry\/sdk-trace-node@2\.\d+\.\d+/
    await expect(loadPackages(() => Promise.reject(missing))).rejects.toMatchObject({
      ...{ code: 'OPTION_INVALID', message: expect.stringMatching(install) },
    })
  })
})

describe('settings', () => {
  const read = (...args: string[]) => readCommand(args, {})
  const ENDPOINT = ['--otlp-endpoint', 'http://127.0.0.1:4318/']

  test('headers are percent-decoded and may be repeated', () => {
    const headers = ['--otlp-headers', 'Authorization=Bearer%20x=', '--otlp-headers', 'a=1,b=']
    expect(read(...ENDPOINT, ...headers)).toMatchObject({
      kind: 'serve',
      settings: {
        otlpEndpoint: 'http://127.0.0.1:4318',
        otlpHeaders: { authorization: 'Bearer x=', a: '1', b: '' },
      },
    })
  })

  test.each([
    [['--otlp-endpoint', 'localhost:4318'], '--otlp-endpoint', /^give the base URL/],
    [['--otlp-endpoint', 'grpc://h:4317'], '--otlp-endpoint', /^give the base URL/],
    [['--otlp-endpoint', 'http://h/?x=1'], '--otlp-endpoint', /^give the base URL/],
    [['--otlp-endpoint', `http://u:${SECRET}@h`], '--otlp-endpoint', /^remove the user and password/],
    [[...ENDPOINT, '--otlp-headers', SECRET], '--otlp-headers', /^give up to 32 headers/],
    [[...ENDPOINT, '--otlp-headers', `a=${SECRET}%0d%0ab:c`], '--otlp-headers', /^give up to 32 headers/],
    [[...ENDPOINT, '--otlp-headers', `a=${SECRET}%`], '--otlp-headers', /^give up to 32 headers/],
    [[...ENDPOINT, '--otlp-headers', `Host=${SECRET}`], '--otlp-headers', /^give up to 32 headers/],
    [[...ENDPOINT, '--otlp-headers', `a=1 A=${SECRET}`], '--otlp-headers', /^give up to 32 headers/],
    [[...ENDPOINT, '--trace-sample', '1.1'], '--trace-sample', /^give a number from 0 to 1/],
    [[...ENDPOINT, '--trace-sample', '1%'], '--trace-sample', /^give a number from 0 to 1/],
    [[...ENDPOINT, '--otlp-metrics-seconds', '1m'], '--otlp-metrics-seconds', /^give seconds/],
    [['--trace-sample', '1'], '--trace-sample', /give --otlp-endpoint/],
    [['--otlp-headers', `a=${SECRET}`], '--otlp-headers', /give --otlp-endpoint/],
    [['--otlp-metrics-seconds', '1'], '--otlp-metrics-seconds', /give --otlp-endpoint/],
  ])('%j is rejected with its fix, and without its secret', (args, field, fix) => {
    const command = read(...args)
    expect(command).toMatchObject({ kind: 'wrong', fieldErrors: [{ field, fix: expect.stringMatching(fix) }] })
    expect(JSON.stringify(command)).not.toContain(SECRET)
  })
})
