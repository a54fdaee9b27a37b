// Checks that Redis is reachable, supported, writable and configured not to evict. In a Cluster, checks every primary.

import type { Cluster, Redis } from 'ioredis'
import { reasonOf } from '../problems/reason.ts'
import { redisClient } from '../store/redis-client.ts'
import { clockFinding, type Finding, failure, ok, warning } from './finding.ts'

const CONNECT_MS_MAX = 3000
const TOTAL_MS_MAX = 10_000
const MAJOR_VERSION_MIN = 7
const SLOT_GROUPS_DEFAULT = 16
const SLOT_GROUPS_KEY = 'sl:slot-groups'
const NEARLY_FULL = 0.9
const PINGS = 5

/** `about` is the name in the settings: `Redis`, or `Redis hot` for a named store. */
export async function examineRedis(
  about: string,
  url: string,
  deadlineMs: number,
  slotGroups: number | undefined,
): Promise<Finding[]> {
  const client = (await redisClient(url, CONNECT_MS_MAX)) as Redis | Cluster // its actual type
  let firstError: unknown
  client.on('error', (error) => {
    firstError ??= error
  })
  const timeout = new Promise<never>((_, reject) => {
    const error = new Error(`no result within ${TOTAL_MS_MAX} ms`)
    setTimeout(() => reject(error), TOTAL_MS_MAX).unref()
  })
  try {
    return await Promise.race([examineAll(about, client, deadlineMs, slotGroups), timeout])
  } catch (error) {
    const address = url.replace(/^\w+(\+\w+)?:\/\//, '').replace(/^.*@/, '')
    const found = `${address} is unreachable: ${reasonOf(firstError ?? error)}`
    return [failure(about, found, 'start it, allow connections from this machine, or correct its URL or password')]
  } finally {
    client.disconnect()
  }
}

async function examineAll(
  about: string,
  client: Redis | Cluster,
  deadlineMs: number,
  groups: number = SLOT_GROUPS_DEFAULT,
): Promise<Finding[]> {
  await client.connect()
  if (!client.isCluster) return examineServer(about, client as Redis, deadlineMs)
  const primaries = (client as Cluster).nodes('master')
  const findings = [await slotGroups(`${about} slot groups`, client as Cluster, primaries.length, groups)]
  for (const primary of primaries) {
    const { host, port } = primary.options
    findings.push(...(await examineServer(`${about} ${host}:${port}`, primary, deadlineMs, true)))
  }
  return findings
}

async function slotGroups(about: string, cluster: Cluster, primaries: number, own: number): Promise<Finding> {
  const found = `${own} for ${primaries} primaries`
  const [recorded] = await cluster.mget(SLOT_GROUPS_KEY)
  if (recorded !== null && recorded !== undefined && Number(recorded) !== own) {
    const fix = `set --redis-slot-groups ${recorded} on all nodes, as recorded in Redis, or change the record`
    return failure(about, found, fix)
  }
  if (primaries <= own) return ok(about, found)
  const enough = 2 ** Math.ceil(Math.log2(primaries))
  return warning(about, found, `raise --redis-slot-groups to ${enough}, or ${primaries - own} primaries stay idle`)
}

async function examineServer(about: string, redis: Redis, deadlineMs: number, inCluster = false): Promise<Finding[]> {
  const info = parseInfo(await redis.info())
  return [
    await latency(about, redis, deadlineMs),
    version(`${about} version`, info),
    role(`${about} role`, info, inCluster),
    memory(`${about} memory`, info),
    await clockFinding(`${about} clock`, async () => {
      const [seconds, microseconds] = await redis.time()
      return Number(seconds) * 1000 + Number(microseconds) / 1000
    }),
  ]
}

function parseInfo(info: string): ReadonlyMap<string, string> {
  const lines = info.split('\r\n').map((line) => line.split(':'))
  return new Map(lines.flatMap(([name, ...value]) => (name && value.length > 0 ? [[name, value.join(':')]] : [])))
}

async function latency(about: string, redis: Redis, deadlineMs: number): Promise<Finding> {
  const times: number[] = []
  for (let ping = 0; ping < PINGS; ping += 1) {
    const startedMs = performance.now()
    await redis.ping()
    times.push(performance.now() - startedMs)
  }
  const medianMs = times.sort((a, b) => a - b)[Math.floor(PINGS / 2)] ?? 0
  const found = `median round trip ${medianMs.toFixed(1)} ms`
  if (medianMs * 2 <= deadlineMs) return ok(about, found)
  return warning(about, found, `move Redis closer, or raise --store-deadline-ms (${deadlineMs} ms)`)
}

function version(about: string, info: ReadonlyMap<string, string>): Finding {
  const found = info.get('redis_version') ?? 'unknown'
  if (Number.parseInt(found, 10) >= MAJOR_VERSION_MIN) return ok(about, found)
  return warning(about, found, `use Redis ${MAJOR_VERSION_MIN} or newer: older versions are not tested`)
}

function role(about: string, info: ReadonlyMap<string, string>, inCluster: boolean): Finding {
  if (info.get('cluster_enabled') === '1' && !inCluster)
    return failure(about, 'a node of a Cluster', 'use a Cluster URL: redis+cluster://host:port')
  const found = info.get('role') ?? 'unknown'
  if (found !== 'slave') return ok(about, found)
  const primary = `${info.get('master_host')}:${info.get('master_port')}`
  return failure(about, 'a replica, which rejects writes', `use the address of its primary, ${primary}`)
}

/** Eviction resets a bucket, so that a client over its limit would be admitted. */
function memory(about: string, info: ReadonlyMap<string, string>): Finding {
  const policy = info.get('maxmemory_policy') ?? 'unknown'
  const isBounded = Number(info.get('maxmemory') ?? 0) > 0
  const found = `maxmemory-policy ${policy}, ${isBounded ? `maxmemory ${info.get('maxmemory_human')}` : 'no maxmemory'}`
  if (policy === 'noeviction' && isBounded) {
    const share = Number(info.get('used_memory') ?? 0) / Number(info.get('maxmemory'))
    const full = `${found}, ${info.get('used_memory_human')} in use`
    const fix = 'raise maxmemory: a full Redis creates no buckets, and on_fail applies to new clients'
    if (share >= 1) return failure(about, full, fix)
    return share >= NEARLY_FULL ? warning(about, full, fix) : ok(about, found)
  }
  if (policy === 'noeviction')
    return warning(about, found, 'set maxmemory below the memory of the machine: CONFIG SET maxmemory 4gb')
  const fix = 'prevent eviction of live buckets: CONFIG SET maxmemory-policy noeviction, and the same in redis.conf'
  return isBounded ? failure(about, found, fix) : warning(about, found, fix)
}
