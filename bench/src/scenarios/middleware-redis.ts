// Throughput of an Express application on Redis: leases (the default) compared with express-rate-limit and
// rate-limit-redis, which makes a round trip per request. Each has its own Redis. The target is for a Redis behind a
// network, as in a fleet; a Redis on the same machine is reported as well.

import { Redis } from 'ioredis'
import { type FaultProxy, startFaultProxy } from 'sluice/testing'
import { withExpress } from '../express-load.ts'
import { alternate, pairedRatio, resultOf, resultsOf, type Samples } from '../measure.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Outcome, Scenario } from '../report.ts'

const NAMES = ['sluice-redis', 'express-rate-limit-redis'] as const
type Name = (typeof NAMES)[number]

/** Added to every reply of Redis, in ms: the round trip between two zones of a data centre. */
const NETWORK_MS = 1
/** Few connections, so that requests wait for Redis rather than for each other. */
const REMOTE_CONNECTIONS = 4
const PINGS = 200

export const scenario: Scenario = {
  what: 'Express with a middleware on a Redis 1 ms away, leased',
  targets: { vs_express_rate_limit_redis: { atLeast: 2 } },
  run: ({ rounds = 5 }) =>
    withRedis(NAMES.length, async (servers) => {
      const local = await compare(servers, undefined, rounds)
      const [remote, roundTrips] = await withNetwork(servers, async (proxies) => {
        const samples = await compare(proxies, REMOTE_CONNECTIONS, rounds)
        return [samples, await roundTripsTo(proxies)] as const
      })
      return {
        results: [
          ...resultsFor(remote, '1 ms away'),
          resultOf('Redis, through the network', roundTrips, 'ms, round trip'),
          ...resultsFor(local, 'same machine'),
        ],
        ratios: {
          vs_express_rate_limit_redis: ratioOf(remote),
          vs_express_rate_limit_redis_same_machine: ratioOf(local),
        },
      }
    }),
}

function compare(
  servers: readonly { readonly port: number }[],
  connections: number | undefined,
  rounds: number,
): Promise<Samples<Name>> {
  const portOf = (name: Name) => String(servers[NAMES.indexOf(name)]?.port)
  return withExpress(NAMES, portOf, (contenders) => alternate(contenders, { rounds, warmups: 4 }), connections)
}

async function withNetwork<T>(
  servers: readonly RedisServer[],
  work: (proxies: readonly FaultProxy[]) => Promise<T>,
): Promise<T> {
  const proxies = await Promise.all(servers.map(({ port }) => startFaultProxy(port)))
  for (const proxy of proxies) proxy.delayReplies(NETWORK_MS)
  try {
    return await work(proxies)
  } finally {
    for (const proxy of proxies) await proxy.stop()
  }
}

async function roundTripsTo([proxy]: readonly FaultProxy[]): Promise<number[]> {
  const client = new Redis(proxy?.port ?? 0)
  const times: number[] = []
  for (let ping = 0; ping < PINGS; ping += 1) {
    const startedMs = performance.now()
    await client.ping()
    times.push(performance.now() - startedMs)
  }
  client.disconnect()
  return times
}

function resultsFor(samples: Samples<Name>, place: string): Outcome['results'] {
  return [
    ...resultsOf(samples, 'requests/s', `requests/s, ${place}`),
    ...resultsOf(samples, 'cpu µs', `µs of CPU/request, ${place}`),
  ]
}

function ratioOf(samples: Samples<Name>): number {
  return pairedRatio(samples['sluice-redis'], samples['express-rate-limit-redis'], 'requests/s')
}
