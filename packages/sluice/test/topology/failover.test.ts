// A primary that is killed under load, in a Cluster and behind Sentinel: no restart, nobody else notices, and no bucket
// admits more than what its replica had not seen. The table of docs/guides/redis.md is written here:
// UPDATE_FIGURES=1 npx vitest run failover

import { readFileSync, writeFileSync } from 'node:fs'
import { Cluster, Redis } from 'ioredis'
import { createCluster, createSentinel } from 'redis'
import type { RedisClient } from 'sluice/redis'
import { startRedis, startRedisCluster, startSentinels } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { DEADLINE_MS, FailoverLoad, LIMIT, slotOfUser } from './failover-load.ts'

const GUIDE = new URL('../../../../docs/guides/redis.md', import.meta.url)
const START = '<!-- failover:start -->'
const END = '<!-- failover:end -->'

/** Replication is far quicker than that, or the test would notice. */
const REPLICATION_LAG_MS = 1000
const SYNCHRONOUS = ['--min-replicas-to-write', '1', '--min-replicas-max-lag', '1']
/** Or a Cluster that has lost a primary serves nobody. */
const PARTIAL_COVERAGE = ['--cluster-require-full-coverage', 'no']

/** What is about to lose its primary, and which users live there. */
type Fleet = { readonly client: RedisClient; kill(): Promise<void>; concerns(user: string): boolean }
type Row = {
  readonly fleet: string
  readonly secondsToExact: number
  readonly overMax: number
  readonly missed: number
  /** Of users who live elsewhere, before and after the kill; none behind Sentinel. */
  readonly elsewhereMs: readonly [number, number] | undefined
}

const FLEETS: Record<string, () => Promise<Fleet>> = {
  'Cluster, ioredis': () => clusterFleet((nodes) => new Cluster(nodes, { lazyConnect: true })),
  'Cluster, node-redis': () =>
    clusterFleet((nodes) => createCluster({ rootNodes: nodes.map((socket) => ({ socket })) })),
  'Sentinel, ioredis': () => sentinelFleet((sentinels, name) => new Redis({ sentinels, name, lazyConnect: true })),
  'Sentinel, node-redis': () => sentinelFleet((sentinelRootNodes, name) => createSentinel({ sentinelRootNodes, name })),
}

type Address = { host: string; port: number }

async function clusterFleet(clientOf: (nodes: Address[]) => RedisClient): Promise<Fleet> {
  const cluster = await startRedisCluster({ replicas: 1, args: PARTIAL_COVERAGE })
  onTestFinished(() => cluster.stop())
  const [victim] = cluster.nodes
  // The first of three primaries has the first third of the slots.
  const concerns = (user: string) => slotOfUser(user) < 16_384 / 3
  return { client: clientOf([...cluster.addresses]), kill: async () => victim?.stop(), concerns }
}

async function sentinelFleet(clientOf: (sentinels: Address[], name: string) => RedisClient): Promise<Fleet> {
  const { sentinels, name, primary, stop } = await startSentinels()
  onTestFinished(stop)
  return { client: clientOf([...sentinels], name), kill: () => primary.stop(), concerns: () => true }
}

const rows: Row[] = []

describe.each(Object.entries(FLEETS))('%s', (name, start) => {
  test('a failover loses what the replica had not seen, and concerns nobody else', async () => {
    const fleet = await start()
    const load = new FailoverLoad(fleet.client, 60)
    await load.rounds(10) // connections, scripts, code that is not compiled yet
    const startedMs = performance.now()
    await load.rounds(10)
    await fleet.kill()
    const killedMs = performance.now()
    await load.untilSpent()
    await vi.waitFor(() => expect(load.store.breaker(), 'nothing is left of the outage').toBe('closed'))
    const concerned = load.users.filter(fleet.concerns)
    for (const user of load.users) {
      if (concerned.includes(user)) {
        const over = load.admitted(user) - LIMIT
        expect(over, user).toBeLessThanOrEqual(load.admittedBefore(user, killedMs, REPLICATION_LAG_MS))
      } else {
        expect(load.wasAlwaysRedis(user), `${user} lives elsewhere`).toBe(true)
        expect(load.admitted(user), user).toBe(LIMIT)
      }
    }
    expect(
      concerned.some((user) => !load.wasAlwaysRedis(user)),
      'the outage was noticed',
    ).toBe(true)
    const elsewhere = load.users.filter((user) => !concerned.includes(user))
    const [beforeMs, afterMs] = [
      load.p99Ms(elsewhere, startedMs, killedMs),
      load.p99Ms(elsewhere, killedMs, Number.POSITIVE_INFINITY),
    ]
    expect(afterMs, 'nobody else waits').toBeLessThan(DEADLINE_MS / 2)
    rows.push({
      fleet: name,
      secondsToExact: load.secondsToExact(concerned, killedMs),
      overMax: Math.max(0, ...concerned.map((user) => load.admitted(user) - LIMIT)),
      missed: concerned.reduce((total, user) => total + load.refusedByPolicy(user), 0),
      elsewhereMs: elsewhere.length === 0 ? undefined : [beforeMs, afterMs],
    })
  })
})

describe.each([
  { name: 'each side of a split brain admits up to the limit', args: [], total: 2 * LIMIT },
  { name: 'a primary without replicas admits nobody when it must have one', args: SYNCHRONOUS, total: LIMIT },
])('two primaries at once', ({ name, args, total }) => {
  test(name, async () => {
    const [old, fresh] = [await startRedis(args), await startRedis()]
    onTestFinished(async () => void (await Promise.all([old.stop(), fresh.stop()])))
    const [oldSide, freshSide] = [old, fresh].map(
      ({ url }) => new FailoverLoad(new Redis(url, { lazyConnect: true }), 1),
    )
    await Promise.all([oldSide?.rounds(2 * LIMIT), freshSide?.rounds(2 * LIMIT)])
    expect((oldSide?.admitted('user-0') ?? 0) + (freshSide?.admitted('user-0') ?? 0)).toBe(total)
  })
})

test('the guide has a row for each of them', () => {
  const page = readFileSync(GUIDE, 'utf8')
  const [before, after] = [page.indexOf(START) + START.length, page.indexOf(END)]
  const updated = process.env.UPDATE_FIGURES === '1'
  if (updated) writeFileSync(GUIDE, page.slice(0, before) + tableOf(rows) + page.slice(after))
  const table = updated ? tableOf(rows) : page.slice(before, after)
  expect(table.match(/^\| \w+, [\w-]+ \|/gm)).toEqual(Object.keys(FLEETS).map((fleet) => `| ${fleet} |`))
})

function tableOf(measured: readonly Row[]): string {
  const lines = measured.map(({ fleet, secondsToExact, overMax, missed, elsewhereMs }) => {
    const elsewhere = elsewhereMs?.map((ms) => `${ms.toFixed(1)} ms`).join(' → ') ?? 'no others'
    return `| ${fleet} | ${secondsToExact.toFixed(1)} s | ${overMax} of ${LIMIT} | ${missed} | ${elsewhere} |`
  })
  const columns = ['exact again after', 'too many in one bucket, at most', 'by `on_fail`', 'p99 of other primaries']
  const head = `| primary killed under load | ${columns.join(' | ')} |`
  return `\n${[head, '|---|---|---|---|---|', ...lines].join('\n')}\n`
}
