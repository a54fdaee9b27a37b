// Failover under load, in a Cluster and behind Sentinel: no restart is needed, other primaries are not affected, and no
// bucket admits more than the limit plus the units that were not replicated. Writes the table of docs/guides/redis.md:
// UPDATE_FIGURES=1 npx vitest run failover

import { readFileSync, writeFileSync } from 'node:fs'
import { Cluster, Redis } from 'ioredis'
import { createCluster, createSentinel } from 'redis'
import type { RedisClient } from 'sluice/redis'
import { startRedis, startRedisCluster, startSentinels } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { connectedSentinel5, FailoverLoad, LIMIT, slotOfUser } from './failover-load.ts'

const GUIDE = new URL('../../../../docs/guides/redis.md', import.meta.url)
const START = '<!-- failover:start -->'
const END = '<!-- failover:end -->'

/** Upper bound of the replication lag. */
const REPLICATION_LAG_MS = 1000
const SYNCHRONOUS = ['--min-replicas-to-write', '1', '--min-replicas-max-lag', '1']
/** By default, a Cluster without one of its primaries rejects all commands. */
const PARTIAL_COVERAGE = ['--cluster-require-full-coverage', 'no']

/** A Redis whose primary will be killed, and the users whose buckets are on it. */
type Fleet = { readonly client: RedisClient; kill(): Promise<void>; isAffected(user: string): boolean }
type Row = {
  readonly fleet: string
  readonly secondsToExact: number
  readonly overMax: number
  readonly missed: number
  /** p99 of users on other primaries, before and after the kill; undefined behind Sentinel. */
  readonly othersMs: readonly [number, number] | undefined
}

const FLEETS: Record<string, () => Promise<Fleet>> = {
  'Cluster, ioredis': () => clusterFleet((nodes) => new Cluster(nodes, { lazyConnect: true })),
  'Cluster, node-redis': () =>
    clusterFleet((nodes) => createCluster({ rootNodes: nodes.map((socket) => ({ socket })) })),
  'Sentinel, ioredis': () => sentinelFleet((sentinels, name) => new Redis({ sentinels, name, lazyConnect: true })),
  'Sentinel, node-redis': () => sentinelFleet((sentinelRootNodes, name) => createSentinel({ sentinelRootNodes, name })),
  'Sentinel, node-redis 5': () => sentinelFleet(connectedSentinel5),
}

type Address = { host: string; port: number }

async function clusterFleet(clientOf: (nodes: Address[]) => RedisClient): Promise<Fleet> {
  const cluster = await startRedisCluster({ replicas: 1, args: PARTIAL_COVERAGE })
  onTestFinished(() => cluster.stop())
  const [victim] = cluster.nodes
  // The first of three primaries has the first third of the slots.
  const isAffected = (user: string) => slotOfUser(user) < 16_384 / 3
  return { client: clientOf([...cluster.addresses]), kill: async () => victim?.stop(), isAffected }
}

async function sentinelFleet(
  clientOf: (sentinels: Address[], name: string) => RedisClient | Promise<RedisClient>,
): Promise<Fleet> {
  const { sentinels, name, primary, stop } = await startSentinels()
  onTestFinished(stop)
  return { client: await clientOf([...sentinels], name), kill: () => primary.stop(), isAffected: () => true }
}

const rows: Row[] = []

describe.each(Object.entries(FLEETS))('%s', (name, start) => {
  test('a failover loses only what was not replicated, and affects no other primary', async () => {
    const fleet = await start()
    const load = new FailoverLoad(fleet.client, 60)
    await load.rounds(10) // warms up connections, scripts and code
    const startedMs = performance.now()
    await load.rounds(10)
    await fleet.kill()
    const killedMs = performance.now()
    await load.untilSpent()
    await vi.waitFor(() => expect(load.store.breaker(), 'all breakers are closed again').toBe('closed'))
    const affected = load.users.filter(fleet.isAffected)
    for (const user of load.users) {
      if (affected.includes(user)) {
        const over = load.admitted(user) - LIMIT
        expect(over, user).toBeLessThanOrEqual(load.admittedBefore(user, killedMs, REPLICATION_LAG_MS))
      } else {
        expect(load.wasAlwaysRedis(user), `${user} is on another primary`).toBe(true)
        expect(load.admitted(user), user).toBe(LIMIT)
      }
    }
    expect(
      affected.some((user) => !load.wasAlwaysRedis(user)),
      'the outage was noticed',
    ).toBe(true)
    const others = load.users.filter((user) => !affected.includes(user))
    const [beforeMs, afterMs] = [
      load.p99Ms(others, startedMs, killedMs),
      load.p99Ms(others, killedMs, Number.POSITIVE_INFINITY),
    ]
    rows.push({
      fleet: name,
      secondsToExact: load.secondsToExact(affected, killedMs),
      overMax: Math.max(0, ...affected.map((user) => load.admitted(user) - LIMIT)),
      missed: affected.reduce((total, user) => total + load.refusedByPolicy(user), 0),
      othersMs: others.length === 0 ? undefined : [beforeMs, afterMs],
    })
  })
})

describe.each([
  { name: 'in a split brain each side admits up to the limit', args: [], total: 2 * LIMIT },
  { name: 'with min-replicas-to-write 1, a primary without replicas admits nothing', args: SYNCHRONOUS, total: LIMIT },
])('two primaries', ({ name, args, total }) => {
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

test('docs/guides/redis.md has a row for each fleet', () => {
  const page = readFileSync(GUIDE, 'utf8')
  const [before, after] = [page.indexOf(START) + START.length, page.indexOf(END)]
  const updated = process.env.UPDATE_FIGURES === '1'
  if (updated) writeFileSync(GUIDE, page.slice(0, before) + tableOf(rows) + page.slice(after))
  const table = updated ? tableOf(rows) : page.slice(before, after)
  expect(table.match(/^\| \w+, [\w -]+ \|/gm)).toEqual(Object.keys(FLEETS).map((fleet) => `| ${fleet} |`))
})

function tableOf(measured: readonly Row[]): string {
  const lines = measured.map(({ fleet, secondsToExact, overMax, missed, othersMs }) => {
    const others = othersMs?.map((ms) => `${ms.toFixed(1)} ms`).join(' → ') ?? 'no others'
    return `| ${fleet} | ${secondsToExact.toFixed(1)} s | ${overMax} of ${LIMIT} | ${missed} | ${others} |`
  })
  const columns = [
    'exact again after',
    'largest excess in one bucket',
    'decided by `on_fail`',
    'p99 of other primaries',
  ]
  const head = `| primary killed under load | ${columns.join(' | ')} |`
  return `\n${[head, '|---|---|---|---|---|', ...lines].join('\n')}\n`
}
