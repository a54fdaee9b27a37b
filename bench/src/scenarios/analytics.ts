// Latency of the queries of an overview page over one day with ten million decisions: in ClickHouse, and from the
// rollups in the embedded database. One client, one query at a time, over HTTP.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { wallClock } from 'sluice'
import { startClickHouse } from 'sluice/testing'
import { clickHouseData, DECISIONS, embeddedData, MINUTES } from '../analytics-data.ts'
import { type HttpServer, startServer } from '../http-server.ts'
import { progress, resultOf } from '../measure.ts'
import type { Result, Scenario } from '../report.ts'
import { ADMIN, AUTHORIZATION, percentile } from '../rules-node.ts'

const SERVER = '../../../packages/server/dist'
const MAIN = fileURLToPath(new URL(`${SERVER}/main.js`, import.meta.url))
const WARMUPS = 2

const QUERIES = {
  timeline: 'timeline?',
  'timeline by rule': 'timeline?by=rule&',
  'top clients': 'top?of=client&by=refused&',
  'top rules': 'top?of=rule&by=refused&',
  summary: 'summary?',
  latency: 'latency?',
} as const

export const scenario: Scenario = {
  what: 'overview queries over a day with 10 M decisions, p95',
  targets: { clickhouse_p95_ms: { atMost: 300 }, embedded_p95_ms: { atMost: 300 } },
  isGate: false,
  async run({ rounds = 20 }) {
    const startMinute = Math.floor(wallClock.nowUs() / 60_000_000) - MINUTES - 1
    const clickHouse = await withClickHouse(startMinute, (node) => measure('ClickHouse', node, startMinute, rounds))
    const embedded = await withEmbedded(startMinute, (node) => measure('embedded', node, startMinute, rounds))
    return {
      results: [...clickHouse.results, ...embedded.results],
      ratios: { clickhouse_p95_ms: clickHouse.p95Ms, embedded_p95_ms: embedded.p95Ms },
    }
  },
}

type Measured = { readonly p95Ms: number; readonly results: readonly Result[] }

async function measure(name: string, node: HttpServer, startMinute: number, rounds: number): Promise<Measured> {
  const iso = (minute: number) => new Date(minute * 60_000).toISOString()
  const range = `from=${iso(startMinute)}&to=${iso(startMinute + MINUTES)}`
  const summary = (await get(node, `summary?${range}`)) as { allowed: number; refused: number }
  if (summary.allowed + summary.refused !== DECISIONS) throw new Error(`${name} counts ${JSON.stringify(summary)}`)
  const times = Object.fromEntries(Object.keys(QUERIES).map((query) => [query, [] as number[]]))
  for (let round = -WARMUPS; round < rounds; round += 1) {
    for (const [query, path] of Object.entries(QUERIES)) {
      const startedMs = performance.now()
      await get(node, path + range)
      if (round >= 0) times[query]?.push(performance.now() - startedMs)
    }
  }
  const all = Object.values(times).flat()
  return {
    p95Ms: percentile(all, 95),
    results: Object.entries(times).map(([query, values]) => resultOf(`${name}, ${query}`, values, 'ms')),
  }
}

async function get({ address }: HttpServer, path: string): Promise<unknown> {
  const answer = await fetch(`${address}/api/v1/analytics/${path}`, { headers: AUTHORIZATION })
  if (!answer.ok) throw new Error(`GET ${path} returned ${answer.status}: ${await answer.text()}`)
  return answer.json()
}

/** The first query creates the tables. */
async function withClickHouse<T>(startMinute: number, work: (node: HttpServer) => Promise<T>): Promise<T> {
  const clickHouse = await startClickHouse()
  try {
    return await withFolder(async (dataDir) => {
      const node = await start(dataDir, ['--events-sink', `clickhouse=${clickHouse.url}`])
      try {
        await get(node, 'summary')
        for (const statement of clickHouseData(startMinute)) await timed(statement, (sql) => clickHouse.query(sql))
        return await work(node)
      } finally {
        await node.stop()
      }
    })
  } finally {
    await clickHouse.stop()
  }
}

type Queries = { query(sql: string): Promise<unknown>; close(): Promise<void> }
type OpenDatabase = (settings: { database: undefined; dataDir: string }) => Promise<Queries>

/** The first node creates the tables. */
function withEmbedded<T>(startMinute: number, work: (node: HttpServer) => Promise<T>): Promise<T> {
  return withFolder(async (dataDir) => {
    await (await start(dataDir, [])).stop()
    const module = new URL(`${SERVER}/db/open-database.js`, import.meta.url).href
    const { openDatabase } = (await import(module)) as { openDatabase: OpenDatabase }
    const database = await openDatabase({ database: undefined, dataDir })
    for (const statement of embeddedData(startMinute)) await timed(statement, (sql) => database.query(sql))
    await database.close()
    const node = await start(dataDir, [])
    try {
      return await work(node)
    } finally {
      await node.stop()
    }
  })
}

async function timed(statement: string, run: (sql: string) => Promise<unknown>): Promise<void> {
  const startedMs = performance.now()
  await run(statement)
  progress(`${statement.slice(0, 40)}…: ${((performance.now() - startedMs) / 1000).toFixed(1)} s`)
}

function start(dataDir: string, args: readonly string[]): Promise<HttpServer> {
  const shared = ['--port', '0', '--data-dir', dataDir, '--drain-ms', '0', '--log-level', 'warn']
  return startServer(MAIN, [...shared, ...ADMIN, ...args])
}

async function withFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-analytics-'))
  const cleanUp = () => rmSync(folder, { recursive: true, force: true })
  process.once('exit', cleanUp) // when the benchmark is interrupted
  try {
    return await work(folder)
  } finally {
    cleanUp()
    process.off('exit', cleanUp)
  }
}
