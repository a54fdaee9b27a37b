// Starts a real Redis primary, its replicas and sentinels for a test.

import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from './free-port.ts'
import { untilRedisReplies } from './redis-command.ts'
import { launchRedis, type RedisProcess, startRedis } from './redis-process.ts'

export type SentinelFleet = {
  readonly primary: RedisProcess
  readonly replicas: readonly RedisProcess[]
  readonly sentinels: readonly { readonly host: string; readonly port: number }[]
  /** Name of the primary in the sentinels. */
  readonly name: string
  stop(): Promise<void>
}

export type SentinelOptions = {
  readonly replicas?: number
  readonly sentinels?: number
  /** Silence after which the sentinels replace the primary. */
  readonly downAfterMs?: number
  /** For the primary and its replicas. */
  readonly args?: readonly string[]
}

const NAME = 'mymaster'

export async function startSentinels(options: SentinelOptions = {}): Promise<SentinelFleet> {
  const { replicas: replicaCount = 1, sentinels: sentinelCount = 3, downAfterMs = 500, args = [] } = options
  const running: RedisProcess[] = []
  const stop = async () => void (await Promise.all(running.map((one) => one.stop())))
  const keep = (one: RedisProcess) => {
    running.push(one)
    return one
  }
  try {
    const primary = keep(await startRedis(args))
    const follow = ['--replicaof', `127.0.0.1 ${primary.port}`, '--repl-diskless-sync-delay', '0', ...args]
    const replicas = await Promise.all(Array.from({ length: replicaCount }, async () => keep(await startRedis(follow))))
    await Promise.all(replicas.map(({ port }) => untilRedisReplies(port, 'INFO replication', 'master_link_status:up')))
    const quorum = Math.floor(sentinelCount / 2) + 1
    const sentinels = await Promise.all(
      Array.from({ length: sentinelCount }, async () => keep(await startSentinel(primary.port, quorum, downAfterMs))),
    )
    const known = [`num-slaves\r\n$1\r\n${replicaCount}`, `num-other-sentinels\r\n$1\r\n${sentinelCount - 1}`]
    const expected = sentinels.flatMap(({ port }) => known.map((text) => [port, text] as const))
    await Promise.all(expected.map(([port, text]) => untilRedisReplies(port, `SENTINEL MASTER ${NAME}`, text)))
    const places = sentinels.map(({ port }) => ({ host: '127.0.0.1', port }))
    return { primary, replicas, sentinels: places, name: NAME, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

async function startSentinel(primaryPort: number, quorum: number, downAfterMs: number): Promise<RedisProcess> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-sentinel-'))
  const file = join(folder, 'sentinel.conf')
  const lines = [
    `sentinel monitor ${NAME} 127.0.0.1 ${primaryPort} ${quorum}`,
    `sentinel down-after-milliseconds ${NAME} ${downAfterMs}`,
    `sentinel failover-timeout ${NAME} ${10 * downAfterMs}`,
  ]
  await writeFile(file, `${lines.join('\n')}\n`)
  return launchRedis(folder, await freePort(), ['--sentinel'], [file])
}
