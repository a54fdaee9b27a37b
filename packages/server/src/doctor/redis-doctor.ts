// Is Redis there, is it one that Sluice knows, and does it keep what it is told? Of a Cluster, every primary is asked.

import type { Cluster, Redis } from 'ioredis'
import { redisClient } from '../counters/redis-url.ts'
import { reasonOf } from '../problems/reason.ts'
import { clockFinding, doubtful, type Finding, well, wrong } from './finding.ts'

const CONNECT_MS_MAX = 3000
const ALL_MS_MAX = 10_000
const KNOWN_MAJOR = 7
const NEARLY_FULL = 0.9
const PINGS = 5

/** `about` is what the settings call it: `Redis`, or `Redis hot` for a further one. */
export async function examineRedis(about: string, url: string, deadlineMs: number): Promise<Finding[]> {
  const client = (await redisClient(url, CONNECT_MS_MAX)) as Redis | Cluster // that is what it makes
  let trouble: unknown
  client.on('error', (error) => {
    trouble ??= error
  })
  const tooLate = new Promise<never>((_, reject) => {
    const error = new Error(`it takes longer than ${ALL_MS_MAX} ms`)
    setTimeout(() => reject(error), ALL_MS_MAX).unref()
  })
  try {
    return await Promise.race([examineAll(about, client, deadlineMs), tooLate])
  } catch (error) {
    const place = url.replace(/^\w+(\+\w+)?:\/\//, '').replace(/^.*@/, '')
    const found = `${place} does not answer: ${reasonOf(trouble ?? error)}`
    return [wrong(about, found, 'start Redis, open the way to it, or give another URL or password')]
  } finally {
    client.disconnect()
  }
}

async function examineAll(about: string, client: Redis | Cluster, deadlineMs: number): Promise<Finding[]> {
  await client.connect()
  if (!client.isCluster) return examineServer(about, client as Redis, deadlineMs)
  const findings: Finding[] = []
  for (const primary of (client as Cluster).nodes('master')) {
    const { host, port } = primary.options
    findings.push(...(await examineServer(`${about} ${host}:${port}`, primary, deadlineMs, true)))
  }
  return findings
}

async function examineServer(about: string, redis: Redis, deadlineMs: number, inCluster = false): Promise<Finding[]> {
  const info = factsIn(await redis.info())
  return [
    await reach(about, redis, deadlineMs),
    version(`${about} version`, info),
    role(`${about} role`, info, inCluster),
    memory(`${about} memory`, info),
    await clockFinding(`${about} clock`, async () => {
      const [seconds, microseconds] = await redis.time()
      return Number(seconds) * 1000 + Number(microseconds) / 1000
    }),
  ]
}

/** `INFO` → its lines by name. */
function factsIn(info: string): ReadonlyMap<string, string> {
  const lines = info.split('\r\n').map((line) => line.split(':'))
  return new Map(lines.flatMap(([name, ...value]) => (name && value.length > 0 ? [[name, value.join(':')]] : [])))
}

async function reach(about: string, redis: Redis, deadlineMs: number): Promise<Finding> {
  const times: number[] = []
  for (let ping = 0; ping < PINGS; ping += 1) {
    const startedMs = performance.now()
    await redis.ping()
    times.push(performance.now() - startedMs)
  }
  const typicalMs = times.sort((a, b) => a - b)[Math.floor(PINGS / 2)] ?? 0
  const found = `answers in ${typicalMs.toFixed(1)} ms`
  if (typicalMs * 2 <= deadlineMs) return well(about, found)
  return doubtful(about, found, `move it nearer, or let checks wait longer than ${deadlineMs} ms for it`)
}

function version(about: string, info: ReadonlyMap<string, string>): Finding {
  const found = info.get('redis_version') ?? 'unknown'
  if (Number.parseInt(found, 10) >= KNOWN_MAJOR) return well(about, found)
  return doubtful(about, found, `use Redis ${KNOWN_MAJOR} or newer: older ones are not tested`)
}

function role(about: string, info: ReadonlyMap<string, string>, inCluster: boolean): Finding {
  if (info.get('cluster_enabled') === '1' && !inCluster)
    return wrong(about, 'a node of a Cluster', 'give the Cluster as a whole: redis+cluster://host:port')
  const found = info.get('role') ?? 'unknown'
  if (found !== 'slave') return well(about, found)
  const primary = `${info.get('master_host')}:${info.get('master_port')}`
  return wrong(about, 'a replica, which takes no writes', `give the address of its primary, ${primary}`)
}

/** An evicted counter is one that begins anew: whoever was refused would be let in. */
function memory(about: string, info: ReadonlyMap<string, string>): Finding {
  const policy = info.get('maxmemory_policy') ?? 'unknown'
  const isBounded = Number(info.get('maxmemory') ?? 0) > 0
  const found = `maxmemory-policy ${policy}, ${isBounded ? `maxmemory ${info.get('maxmemory_human')}` : 'no maxmemory'}`
  if (policy === 'noeviction' && isBounded) {
    const share = Number(info.get('used_memory') ?? 0) / Number(info.get('maxmemory'))
    const full = `${found}, ${info.get('used_memory_human')} in use`
    const fix = 'raise maxmemory: a full Redis makes no new buckets, and on_fail decides for clients without one'
    if (share >= 1) return wrong(about, full, fix)
    return share >= NEARLY_FULL ? doubtful(about, full, fix) : well(about, found)
  }
  if (policy === 'noeviction')
    return doubtful(about, found, 'set maxmemory below the memory of the machine: CONFIG SET maxmemory 4gb')
  const fix = 'keep what was counted: CONFIG SET maxmemory-policy noeviction, and the same in redis.conf'
  return isBounded ? wrong(about, found, fix) : doubtful(about, found, fix)
}
