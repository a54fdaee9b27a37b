import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { GatewayMetrics } from '../src/gateway/gateway-metrics.ts'
import { Metrics } from '../src/metrics/metrics.ts'
import { BATCH, CHECK, serveApp } from './service.ts'

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
  test('counts each check once, under the rule that it reports, and shadow refusals besides', async () => {
    const { get, post } = await serveApp([TWO, TRIAL])
    const checks = ['a', 'a', 'a', 'b'].map((client_id) => ({ client_id }))
    await post(BATCH, { checks })
    await post(CHECK, {})
    await post(CHECK, { cost: 0 })
    const found = await samples(get)
    const ours = [...found].filter(([name]) => name.startsWith('sluice_checks_total'))
    expect(Object.fromEntries(ours)).toEqual({
      'sluice_checks_total{rule="two",result="allowed"}': 3,
      'sluice_checks_total{rule="two",result="refused"}': 1,
      'sluice_checks_total{rule="trial",result="shadow_refused"}': 2,
      'sluice_checks_total{rule="none",result="allowed"}': 1,
    })
    expect(found.get('sluice_decision_seconds_count')).toBe(5)
    expect(found.get('sluice_decision_seconds_bucket{le="+Inf"}')).toBe(5)
    expect(found.get('sluice_decision_seconds_sum')).toBeGreaterThan(0)
  })

  test('tells the keys held, and the state of the rules', async () => {
    const { get, post, metrics } = await serveApp([TWO])
    await post(BATCH, { checks: [{ client_id: 'a' }, { client_id: 'b' }] })
    metrics.watchRules(() => ({ version: 7, valid: false, ageSeconds: 12 }))
    metrics.rulesArrived(0.2)
    const found = await samples(get)
    expect(found.get('sluice_keys')).toBe(2)
    expect(found.get('sluice_overflowed_total')).toBe(0)
    expect(found.get('sluice_rules_valid')).toBe(0)
    expect(found.get('sluice_rules_version')).toBe(7)
    expect(found.get('sluice_rules_age_seconds')).toBe(12)
    expect(found.get('sluice_rules_propagation_seconds_bucket{le="0.25"}')).toBe(1)
  })

  test('never has a client key in it', async () => {
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

  test('buckets are cumulative, and each value falls into the first that holds it', async () => {
    const metrics = new Metrics()
    for (const takes of [1, 2, 3, 200, 201]) metrics.storeAnswered(takes, 0.002)
    const text = await metrics.registry.metrics()
    const counts = [...text.matchAll(/sluice_batch_takes_bucket\{le="([^"]+)"\} (\d+)/g)].map(
      ([, le, count]) => `${le}:${count}`,
    )
    expect(counts).toEqual(['1:1', '2:2', '5:3', '10:3', '20:3', '50:3', '100:3', '200:4', '+Inf:5'])
    expect(text).toContain('sluice_batch_takes_sum 407\nsluice_batch_takes_count 5')
  })

  test('ten thousand rules have labels of their own, and all others share one', async () => {
    const metrics = new Metrics()
    for (let rule = 0; rule < 10_050; rule += 1) metrics.decided(`rule_${rule}`, true, 'store', 0)
    expect(await metrics.registry.metrics()).toContain('sluice_checks_total{rule="other",result="allowed"} 50')
  })
})

test('docs/reference/metrics.md names every metric of ours, and no other', async () => {
  const page = readFileSync(new URL('../../../docs/reference/metrics.md', import.meta.url), 'utf8')
  const documented = [...page.matchAll(/^\| `(sluice_\w+)/gm)].map(([, name]) => name)
  const { registry } = new Metrics()
  new GatewayMetrics(registry)
  const text = await registry.metrics()
  const exposed = [...text.matchAll(/^# TYPE (sluice_\w+)/gm)].map(([, name]) => name)
  expect(documented.sort()).toEqual(exposed.sort())
})
