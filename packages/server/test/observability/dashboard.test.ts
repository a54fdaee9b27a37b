// A real node under traffic, scraped by a real Prometheus: every metric that deploy/ names exists, and every query of
// the dashboard returns data.

import { startFaultProxy, startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { ConsumerCounts } from '../../src/events/kafka/consumer-counts.ts'
import { ADMIN_TOKEN, BATCH, type Client, RULE_SET, serveEmbedded } from '../service.ts'
import { type Prometheus, promtool, startPrometheus } from './prometheus-process.ts'
import { dashboard, dashboardQueries, deployedRules, namesIn } from './queries.ts'

const API = { endpoint_pattern: '/api/:id', scope: 'per_user', on_fail: 'open' }
const RULES = [
  { ...API, rule_id: 'leased', limit: 10_000_000, window: '1h', consistency: 'leased' },
  { ...API, rule_id: 'shared', limit: 10_000_000, window: '1d', spread: 'global', algorithm: 'fixed_window' },
  { ...API, rule_id: 'tight', endpoint_pattern: '/login', limit: 1, window: '1h', on_fail: 'closed' },
  { ...API, rule_id: 'trial', endpoint_pattern: '/login', limit: 1, window: '1h', mode: 'shadow' },
]

test('the dashboard can be imported', () => {
  const { uid, schemaVersion, templating, panels } = dashboard()
  expect(uid).toBe('sluice')
  expect(schemaVersion).toBeGreaterThanOrEqual(36)
  expect(templating.list.map(({ name }) => name)).toEqual(['datasource', 'job', 'instance'])
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
  for (const { targets = [] } of panels) {
    for (const { datasource } of targets) expect(datasource.uid).toBe(`\${${'datasource'}}`)
  }
  const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) => {
    return Array.from({ length: w * h }, (_, index) => `${x + (index % w)},${y + Math.floor(index / w)}`)
  })
  expect(new Set(cells).size).toBe(cells.length) // no two panels overlap
})

test('the dashboard uses no recorded series that does not exist', () => {
  const recorded = new Set(deployedRules().flatMap(({ record = [] }) => record))
  const used = dashboardQueries().flatMap(({ expr }) => namesIn(expr))
  expect(used.filter((name) => name.includes(':') && !recorded.has(name))).toEqual([])
})

describe('a node under traffic', () => {
  test('has every metric of deploy/, and returns data for every query', async () => {
    const node = await serveRegion()
    const prometheus = await startPrometheus([new URL(node.client.address).host])
    await node.useEverything()

    const scrape = String((await node.client.get('/metrics')).body.text)
    expect(promtool(['check', 'metrics'], scrape)).toEqual({ code: 0, output: '' })
    const consumer = new ConsumerCounts() // another process, `sluice events consume`
    consumer.setPosition(0, 1)
    const exposed = new Set(
      [...`${scrape}${await consumer.registry().metrics()}`.matchAll(/^([a-z_0-9]+)[{ ]/gm)].map(([, name]) => name),
    )
    const queries = [...dashboardQueries().map(({ expr }) => expr), ...deployedRules().map(({ expr }) => expr)]
    const scraped = queries.flatMap(namesIn).filter((name) => !name.includes(':'))
    expect(scraped.filter((name) => !exposed.has(name))).toEqual([])

    await eventually(async () => {
      await node.changeRules() // histograms need changes between two scrapes
      await node.useAll()
      expect(await emptyQueries(prometheus)).toEqual([])
    })
    expect((await prometheus.rules()).filter(({ health }) => health === 'err')).toEqual([])
  })
})

function eventually(work: () => Promise<void>): Promise<void> {
  return vi.waitFor(work, { timeout: 120_000, interval: 500 })
}

/** Queries of the dashboard that return no number. */
async function emptyQueries(prometheus: Prometheus): Promise<string[]> {
  const results = await Promise.all(
    dashboardQueries().map(async ({ title, expr }) => {
      const samples = await prometheus.query(expr)
      const hasData = samples.some(({ value: [, text] }) => Number.isFinite(Number(text)))
      return hasData ? [] : [`${title}: ${expr}`]
    }),
  )
  return results.flat()
}

/** A node in a region, with its rules in a database, whose Redis can fail. */
async function serveRegion() {
  const [regional, global] = await Promise.all([startRedis(['--maxmemory', '64mb']), startRedis()])
  const way = await startFaultProxy(regional.port)
  onTestFinished(async () => {
    await way.stop()
    await Promise.all([regional.stop(), global.stop()])
  })
  const client = await serveEmbedded({
    adminToken: ADMIN_TOKEN,
    redis: `redis://127.0.0.1:${way.port}`,
    globalRedis: global.url,
    region: 'eu',
    regionWeights: { eu: 0.5, us: 0.5 },
  })
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` }
  let changes = 0
  const changeRules = async () => {
    changes += 1
    const rules = RULES.map((rule) => ({ ...rule, description: `change ${changes}` }))
    const answer = await client.send(RULE_SET, { method: 'PUT', headers, body: JSON.stringify({ rules }) })
    expect(answer).toMatchObject({ status: 200 })
  }
  await changeRules()
  const useAll = () => use(client)
  const fail = async () => {
    way.shut()
    await eventually(async () => {
      await useAll()
      const { body: scrape } = await client.get('/metrics')
      for (const name of ['store_errors', 'fail_open', 'fail_closed']) {
        expect(String(scrape.text)).toMatch(new RegExp(`^sluice_${name}_total\\{.*\\} [1-9]`, 'm'))
      }
    })
    way.open()
  }
  const useEverything = async () => {
    await useAll()
    await fail()
    await eventually(async () => {
      await useAll()
      const { body: scrape } = await client.get('/metrics')
      expect(String(scrape.text)).toMatch(/^sluice_lease_hits_total [1-9]/m)
      expect(String(scrape.text)).toMatch(/^sluice_hottest_key_checks_per_second\{/m)
    })
  }
  return { client, useAll, useEverything, changeRules }
}

let clients = 0

async function use({ check, post }: Client): Promise<void> {
  const checks = Array.from({ length: 1000 }, (_, index) => ({ client_id: 'busy', endpoint: `/api/${index}` }))
  await post(BATCH, { checks })
  clients += 1 // a new client, because nodes remember refusals
  for (let index = 0; index < 3; index += 1) await check({ client_id: `client-${clients}`, endpoint: '/login' })
}
