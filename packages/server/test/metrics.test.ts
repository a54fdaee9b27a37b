import { readFileSync } from 'node:fs'
import { parseRules } from 'sluice'
import { describe, expect, test } from 'vitest'
import { ConsumerCounts } from '../src/events/kafka/consumer-counts.ts'
import { GatewayMetrics } from '../src/gateway/gateway-metrics.ts'
import { Metrics } from '../src/metrics/metrics.ts'
import { mergedText } from '../src/metrics/reports.ts'
import { TelemetryMetrics } from '../src/telemetry/telemetry-metrics.ts'
import { BATCH, CHECK, serveApp, serveFile } from './service.ts'

const SERVER = { store: 'default', server: undefined }
const TWO = { rule_id: 'two', limit: 2, window_seconds: 60, scope: 'per_user', algorithm: 'fixed_window' }
const TRIAL = { rule_id: 'trial', limit: 1, window_seconds: 60, scope: 'per_user', mode: 'shadow' }

async function samples(
  get: (path: string) => Promise<{ body: Record<string, unknown> }>,
): Promise<Map<string, number>> {
  const lines = String((await get('/metrics')).body.text).split('\n')
  return new Map(
    lines
      .filter((line) => /^\w/.test(line))
      .map((line) => {
        const at = line.lastIndexOf(' ')
        return [line.slice(0, at), Number(line.slice(at + 1))] as const
      }),
  )
}

describe('/metrics', () => {
  test('counts each check once, under the rule that it reports, and shadow refusals separately', async () => {
    const { get, post } = await serveApp([TWO, TRIAL])
    const checks = ['a', 'a', 'a', 'b'].map((client_id) => ({ client_id }))
    await post(BATCH, { checks })
    await post(CHECK, {})
    await post(CHECK, { cost: 0 })
    const found = await samples(get)
    const ours = [...found].filter(([name]) => /^sluice_(checks|shadow)/.test(name))
    expect(Object.fromEntries(ours)).toEqual({
      'sluice_checks_total{rule="two",result="allowed"}': 3,
      'sluice_checks_total{rule="two",result="refused"}': 1,

      'sluice_checks_total{rule="none",result="allowed"}': 1,
      'sluice_shadow_refused_total{rule="trial"}': 2,
    })
    expect(found.get('sluice_decision_duration_seconds_count')).toBe(5)
    expect(found.get('sluice_decision_duration_seconds_bucket{le="+Inf"}')).toBe(5)
    expect(found.get('sluice_decision_duration_seconds_sum')).toBeGreaterThan(0)
  })

  test('reports the keys held and the state of the rules', async () => {
    const { get, post, metrics } = await serveApp([TWO])
    await post(BATCH, { checks: [{ client_id: 'a' }, { client_id: 'b' }] })
    metrics.watchRules(() => ({ version: 7, valid: false, ageSeconds: 12 }))
    metrics.rulesArrived(0.2)
    const found = await samples(get)
    expect(found.get('sluice_memory_keys')).toBe(2)
    expect(found.get('sluice_overflow_checks_total')).toBe(0)
    expect(found.get('sluice_rules_valid')).toBe(0)
    expect(found.get('sluice_rules_version')).toBe(7)
    expect(found.get('sluice_rules_age_seconds')).toBe(12)
    expect(found.get('sluice_rules_propagation_seconds_bucket{le="0.25"}')).toBe(1)
  })

  test('contains no client key', async () => {
    const { get, post } = await serveApp([TWO])
    const secret = 'alice-secret-1'
    await post(CHECK, {
      client_id: secret,
      api_key: secret,
      tenant: secret,
      plan: secret,
      request_id: secret,
      endpoint: `/${secret}`,
    })
    expect(String((await get('/metrics')).body.text)).not.toContain(secret)
  })

  test('histogram buckets are cumulative, and each value falls into the first one that fits', async () => {
    const metrics = new Metrics()
    for (const takes of [1, 2, 3, 200, 201]) metrics.storeAnswered(takes, 0.002, SERVER)
    const text = await metrics.registry.metrics()
    const counts = [...text.matchAll(/sluice_store_batch_requests_bucket\{le="([^"]+)"\} (\d+)/g)].map(
      ([, le, count]) => `${le}:${count}`,
    )
    expect(counts).toEqual(['1:1', '2:2', '5:3', '10:3', '20:3', '50:3', '100:3', '200:4', '+Inf:5'])
    expect(text).toContain('sluice_store_batch_requests_sum 407\nsluice_store_batch_requests_count 5')
  })

  test('ten thousand rules have their own labels, and all others share one', async () => {
    const metrics = new Metrics()
    for (let rule = 0; rule < 10_050; rule += 1) metrics.decided(`rule_${rule}`, true, 'store', 0)
    expect(await metrics.registry.metrics()).toContain('sluice_checks_total{rule="other",result="allowed"} 50')
  })

  test('a refusal counts once by endpoint pattern and once by limit, never by path', async () => {
    const tiers = { rule_id: 'tiers', scope: 'per_user', algorithm: 'fixed_window', endpoint_pattern: '/api/:id' }
    const limits = [
      { name: 'burst', limit: 1, window_seconds: 1 },
      { name: 'daily', limit: 1000, window_seconds: 86_400 },
    ]
    const { get, post } = await serveApp([TWO, { ...tiers, limits }])
    for (const path of ['/api/1', '/api/2', '/api/3']) await post(CHECK, { client_id: 'a', endpoint: path })
    const found = await samples(get)
    expect(found.get('sluice_refused_total{endpoint="/api/:id"}')).toBe(2)
    expect(found.get('sluice_limit_refused_total{rule="tiers",limit="burst"}')).toBe(2)
    expect([...found.keys()].filter((name) => name.includes('/api/1'))).toEqual([])
  })

  test('a thousand endpoints and ten thousand limits have their own labels, and all others share one', async () => {
    const metrics = new Metrics()
    for (let index = 0; index < 10_050; index += 1) metrics.refused(`rule_${index}`, 'default', `/${index}`)
    const text = await metrics.registry.metrics()
    expect(text).toContain('sluice_refused_total{endpoint="other"} 9050\n')
    expect(text).toContain('sluice_limit_refused_total{rule="other",limit="other"} 50\n')
  })

  test('decisions by on_fail count apart, open or closed', async () => {
    const metrics = new Metrics()
    metrics.decided('fair', true, 'policy', 0)
    metrics.decided('fair', true, 'policy', 0)
    metrics.decided('login', false, 'policy', 0)
    metrics.decided('login', false, 'store', 0)
    const text = await metrics.registry.metrics()
    expect(text).toContain('sluice_fail_open_total{rule="fair"} 2\n')
    expect(text).toContain('sluice_fail_closed_total{rule="login"} 1\n')
    expect(text).not.toContain('sluice_fail_closed_total{rule="fair"}')
  })

  test('series of on_fail exist from the start, so that a rate sees the first count', async () => {
    const fail = { scope: 'per_user', limit: 1, window_seconds: 60 }
    const rules = (['open', 'closed', 'local'] as const).map((on_fail) => ({ ...fail, rule_id: on_fail, on_fail }))
    const found = await samples((await serveFile(JSON.stringify(rules))).get)
    const ours = [...found].filter(([name]) => name.startsWith('sluice_fail_'))
    expect(Object.fromEntries(ours)).toEqual({
      'sluice_fail_open_total{rule="open"}': 0,
      'sluice_fail_closed_total{rule="closed"}': 0,
    })
  })

  test('rules that were removed make room for others, and totals still count them', async () => {
    const metrics = new Metrics()
    const rules = (prefix: string, count: number) =>
      parseRules(
        Array.from({ length: count }, (_, index) => {
          const limits = { scope: 'per_user', limit: 1, window_seconds: 60 }
          return { rule_id: `${prefix}_${index}`, endpoint_pattern: `/${prefix}/${index}`, ...limits }
        }),
      )
    const refuse = (prefix: string, count: number) => {
      for (let index = 0; index < count; index += 1) {
        metrics.decided(`${prefix}_${index}`, false, 'store', 0)
        metrics.refused(`${prefix}_${index}`, 'default', `/${prefix}/${index}`)
      }
    }
    metrics.rulesActive(rules('old', 1))
    refuse('old', 10_001)
    metrics.rulesActive([...rules('old', 1), ...rules('new', 2)])
    refuse('new', 2)
    const text = await metrics.registry.metrics()
    const labels = (name: string) =>
      [...text.matchAll(new RegExp(`^${name}\\{(.*)\\} (\\d+)$`, 'gm'))].map(([, a, b]) => `${a} ${b}`)
    expect(labels('sluice_refused_total')).toEqual([
      ...['endpoint="/old/0" 1', 'endpoint="other" 9001', 'endpoint="/new/0" 1', 'endpoint="/new/1" 1'],
    ])
    expect(labels('sluice_limit_refused_total')).toHaveLength(4)
    expect(labels('sluice_checks_total')).toHaveLength(4)
    expect(metrics.checkTotals()).toMatchObject({ decided: 10_003, refused: 10_003 })
  })

  test('round trips and errors count by server, and a Cluster of any size has at most 200 servers', async () => {
    const metrics = new Metrics()
    for (let port = 0; port < 205; port += 1) {
      metrics.storeAnswered(1, 0.002, { store: 'default', server: `10.0.0.1:${port}` })
    }
    metrics.storeFailed('STORE_UNAVAILABLE', { store: 'default', server: '10.0.0.1:7' })
    const text = await metrics.registry.metrics()
    expect(text).toContain('sluice_store_duration_seconds_count{store="default",server="10.0.0.1:7"} 1\n')
    expect(text).toContain('sluice_store_duration_seconds_count{store="other",server="other"} 5\n')
    expect(text).toContain(
      'sluice_store_errors_total{store="default",server="10.0.0.1:7",code="STORE_UNAVAILABLE"} 1\n',
    )
  })
})

test('the metrics of two workers add up, by server, limit and endpoint', async () => {
  const reports = [1, 2].map(async (count) => {
    const metrics = new Metrics()
    for (let index = 0; index < count; index += 1) {
      metrics.storeAnswered(1, 0.002, SERVER)
      metrics.storeFailed('STORE_UNAVAILABLE', SERVER)
      metrics.decided('r', true, 'policy', 0.001)
      metrics.refused('r', 'daily', '/api/:id')
    }
    return (await metrics.report()).totals
  })
  const text = await mergedText(await Promise.all(reports))
  expect(text).toContain('sluice_store_duration_seconds_bucket{store="default",server="all",le="0.0025"} 3\n')
  expect(text).toContain('sluice_store_duration_seconds_count{store="default",server="all"} 3\n')
  expect(text).toContain('sluice_store_errors_total{store="default",server="all",code="STORE_UNAVAILABLE"} 3\n')
  expect(text).toContain('sluice_fail_open_total{rule="r"} 3\n')
  expect(text).toContain('sluice_refused_total{endpoint="/api/:id"} 3\n')
  expect(text).toContain('sluice_limit_refused_total{rule="r",limit="daily"} 3\n')
})

test('a scrape reads the statistics of the store once', async () => {
  const metrics = new Metrics()
  let reads = 0
  const stats = () => {
    reads += 1
    return { keys: reads }
  }
  metrics.watchStore({ stats })
  expect(await metrics.scrape()).toContain('sluice_memory_keys 1\n')
  expect(await metrics.scrape()).toContain('sluice_memory_keys 2\n')
})

test('docs/reference/metrics.md lists every metric of Sluice, and no other', async () => {
  const page = readFileSync(new URL('../../../docs/reference/metrics.md', import.meta.url), 'utf8')
  const documented = [...page.matchAll(/^\| `(sluice_\w+)/gm)].map(([, name]) => name)
  const { registry } = new Metrics()
  new GatewayMetrics(registry)
  new TelemetryMetrics(registry)
  const consumer = await new ConsumerCounts().registry().metrics()
  const text = (await registry.metrics()) + consumer
  const exposed = [...text.matchAll(/^# TYPE (sluice_\w+)/gm)].map(([, name]) => name)
  expect(documented.sort()).toEqual(exposed.sort())
})
