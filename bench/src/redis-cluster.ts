// Starts a Redis Cluster of three primaries on this machine, and creates clients for it or for one redis-server. The
// cost of a check is the CPU time of all primaries.

import { Cluster, Redis } from 'ioredis'
import { startRedisCluster } from 'sluice/testing'
import { type RedisFigures, readRedis } from './redis-server.ts'

export type ClusterServers = {
  /** Ports of its primaries, in the format of `clientOf`. */
  readonly ports: string
  /** User and system time of all primaries since the start. */
  cpuUs(): Promise<number>
}

/** `6379` is one server; `6379,6380,6381` are primaries of a Cluster. */
export function clientOf(portList: string): Redis | Cluster {
  const ports = portList.split(',').map(Number)
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
      ports: cluster.nodes.map(({ port }) => port).join(','),
      cpuUs: async () => (await Promise.all(primaries.map((one) => one.cpuUs()))).reduce((sum, us) => sum + us, 0),
    })
  } finally {
    process.off('exit', abandon)
    for (const one of primaries) one.close()
    await cluster.stop()
  }
}
