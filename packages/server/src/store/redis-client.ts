// Creates ioredis clients for a single server, a Cluster or a primary behind Sentinel.

import type { Cluster, Redis, RedisOptions } from 'ioredis'
import type { RedisClient } from 'sluice/redis'
import { readRedisUrl } from '../settings/redis-url.ts'

/** A silent connection is closed, as the store's are: a frozen Redis must not keep a node from stopping. */
const SILENT_MS_MAX = 2000

/** A client that connects when the store does. */
export async function redisClient(url: string, connectTimeout: number): Promise<RedisClient> {
  return ioClient(url, { connectTimeout }, {})
}

/** A separate connection for single commands, without an offline queue and without retries. */
export async function connectOnce(url: string, connectTimeout: number): Promise<Redis | Cluster> {
  const once = {
    connectTimeout,
    socketTimeout: SILENT_MS_MAX,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
  }
  const client = await ioClient(url, once, { enableOfflineQueue: false })
  client.on('error', () => {}) // the store reports outages
  const timeout = new Promise<void>((resolve) => void setTimeout(resolve, connectTimeout).unref())
  await Promise.race([client.connect().catch(() => {}), timeout])
  return client
}

type EachOptions = Pick<
  RedisOptions,
  'connectTimeout' | 'socketTimeout' | 'maxRetriesPerRequest' | 'autoResendUnfulfilledCommands'
>

/** `each`: options of each server connection. `own`: options of the client. */
async function ioClient(url: string, each: EachOptions, own: { enableOfflineQueue?: false }): Promise<Redis | Cluster> {
  // Loaded on demand: a node without Redis starts faster.
  const { Cluster, Redis } = await import('ioredis')
  const parsed = readRedisUrl(url) ?? { kind: 'single', url }
  const both = { lazyConnect: true, ...each, ...own }
  if (parsed.kind === 'single') return new Redis(parsed.url, both)
  const { nodes, access } = parsed
  if (parsed.kind === 'cluster') {
    return new Cluster([...nodes], { lazyConnect: true, ...own, redisOptions: { ...access, ...each } })
  }
  const overTls = access.tls === undefined ? {} : { enableTLSForSentinelMode: true, sentinelTLS: access.tls }
  return new Redis({ ...access, ...both, ...overTls, sentinels: [...nodes] })
}
