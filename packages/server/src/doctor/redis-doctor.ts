// Is Redis there, is it one that Sluice knows, and does it keep what it is told?

import { Redis } from 'ioredis'
import { reasonOf } from '../reason.ts'
import { clockFinding, doubtful, type Finding, well, wrong } from './finding.ts'

const CONNECT_MS_MAX = 3000
const KNOWN_MAJOR = 7
const PINGS = 5

export async function examineRedis(url: string, deadlineMs: number): Promise<Finding[]> {
  const options = { lazyConnect: true, connectTimeout: CONNECT_MS_MAX, commandTimeout: CONNECT_MS_MAX }
  const redis = new Redis(url, { ...options, maxRetriesPerRequest: 0, retryStrategy: () => null })
  let trouble: unknown
  redis.on('error', (error) => {
    trouble = error
  })
  try {
    await redis.connect()
    const info = factsIn(await redis.info())
    return [
      await reach(redis, deadlineMs),
      version(info),
      role(info),
      memory(info),
      await clockFinding('Redis clock', async () => {
        const [seconds, microseconds] = await redis.time()
        return Number(seconds) * 1000 + Number(microseconds) / 1000
      }),
    ]
  } catch (error) {
    const { host, port } = redis.options
    const found = `${host}:${port} does not answer: ${reasonOf(trouble ?? error)}`
    return [wrong('Redis', found, 'start Redis, open the way to it, or give another URL or password with --redis')]
  } finally {
    redis.disconnect()
  }
}

/** `INFO` → its lines by name. */
function factsIn(info: string): ReadonlyMap<string, string> {
  const lines = info.split('\r\n').map((line) => line.split(':'))
  return new Map(lines.flatMap(([name, ...value]) => (name && value.length > 0 ? [[name, value.join(':')]] : [])))
}

async function reach(redis: Redis, deadlineMs: number): Promise<Finding> {
  const times: number[] = []
  for (let ping = 0; ping < PINGS; ping += 1) {
    const startedMs = performance.now()
    await redis.ping()
    times.push(performance.now() - startedMs)
  }
  const typicalMs = times.sort((a, b) => a - b)[Math.floor(PINGS / 2)] ?? 0
  const found = `answers in ${typicalMs.toFixed(1)} ms`
  if (typicalMs * 2 <= deadlineMs) return well('Redis', found)
  const fix = `move it nearer, or give --store-deadline-ms more than ${deadlineMs}: checks do not wait longer than that`
  return doubtful('Redis', found, fix)
}

function version(info: ReadonlyMap<string, string>): Finding {
  const found = info.get('redis_version') ?? 'unknown'
  if (Number.parseInt(found, 10) >= KNOWN_MAJOR) return well('Redis version', found)
  return doubtful('Redis version', found, `use Redis ${KNOWN_MAJOR} or newer: older ones are not tested`)
}

function role(info: ReadonlyMap<string, string>): Finding {
  if (info.get('cluster_enabled') === '1')
    return wrong('Redis role', 'a node of a Cluster', 'give a single server: Cluster is not supported yet')
  const found = info.get('role') ?? 'unknown'
  if (found !== 'slave') return well('Redis role', found)
  const primary = `${info.get('master_host')}:${info.get('master_port')}`
  return wrong('Redis role', 'a replica, which takes no writes', `give the address of its primary, ${primary}`)
}

/** An evicted counter is one that begins anew: whoever was refused would be let in. */
function memory(info: ReadonlyMap<string, string>): Finding {
  const policy = info.get('maxmemory_policy') ?? 'unknown'
  const isBounded = Number(info.get('maxmemory') ?? 0) > 0
  const found = `maxmemory-policy ${policy}, ${isBounded ? `maxmemory ${info.get('maxmemory_human')}` : 'no maxmemory'}`
  if (policy === 'noeviction' && isBounded) return well('Redis memory', found)
  if (policy === 'noeviction')
    return doubtful('Redis memory', found, 'set maxmemory below the memory of the machine: CONFIG SET maxmemory 4gb')
  const fix = 'keep what was counted: CONFIG SET maxmemory-policy noeviction, and the same in redis.conf'
  return isBounded ? wrong('Redis memory', found, fix) : doubtful('Redis memory', found, fix)
}
