// Where contenders count: one redis-server, or a Cluster of three primaries on this machine. What a check costs is the
// CPU time of all of them together.

import { Cluster, Redis } from 'ioredis'
import { startRedisCluster } from 'sluice/testing'
import { type RedisFigures, readRedis } from './redis-server.ts'

export type ClusterServers = {
  /** The ports of its primaries, as `clientOf` reads them. */
  readonly place: string
  /** User and system time of all primaries since the start. */
  cpuUs(): Promise<number>
}

/** `6379` is one server; `6379,6380,6381` are primaries of a Cluster. */
export function clientOf(place: string): Redis | Cluster {
  const ports = place.split(',').map(Number)
  const [port = 0] = ports
  if (ports.length === 1) return new Redis(port, { lazyConnect: true, retryStrategy: () => 100 })
  return new Cluster(
    ports.map((each) => ({ host: '127.0.0.1', port: each })),
    { lazyConnect: true },
  )
}

export async function withCluster<T>(work: (cluster: ClusterServers) => Promise<T>): Promise<T> {
  const cluster = await startRedisCluster({ primaries: 3, replicas: 0 })
  const abandon = () => {
    for (const { pid } of cluster.nodes) process.kill(pid, 'SIGKILL')
  }
  process.once('exit', abandon) // when the benchmark is interrupted
  const primaries: RedisFigures[] = cluster.nodes.map(({ port }) => readRedis(port))
  try {
    return await work({
      place: cluster.nodes.map(({ port }) => port).join(','),
      cpuUs: async () => (await Promise.all(primaries.map((one) => one.cpuUs()))).reduce((sum, us) => sum + us, 0),
    })
  } finally {
    process.off('exit', abandon)
    for (const one of primaries) one.close()
    await cluster.stop()
  }
}
