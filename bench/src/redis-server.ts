// Starts a redis-server on a free port in a temporary folder, without persistence; `stop` ends it and removes the
// folder. CPU and memory are those reported by INFO.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Redis } from 'ioredis'

/** Numbers from INFO. */
export type RedisFigures = {
  /** User and system time since the start. */
  cpuUs(): Promise<number>
  usedBytes(): Promise<number>
  keys(): Promise<number>
  /** Script calls since the start, and the time inside them (INFO commandstats). */
  scripts(): Promise<{ readonly calls: number; readonly us: number }>
  /** Bytes received and sent since the start. */
  networkBytes(): Promise<number>
  close(): void
}

export type RedisServer = Omit<RedisFigures, 'close'> & {
  readonly port: number
  stop(): Promise<void>
}

export async function startRedis(): Promise<RedisServer> {
  const port = await freePort()
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-redis-'))
  const options = { port, bind: '127.0.0.1', dir: folder, save: '', appendonly: 'no', daemonize: 'no' }
  const args = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)])
  const child = spawn('redis-server', args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const abandon = () => {
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', abandon) // when the benchmark is interrupted
  const stop = async () => {
    if (child.exitCode === null && child.kill('SIGTERM')) await once(child, 'exit')
    await rm(folder, { recursive: true, force: true })
    process.off('exit', abandon)
  }
  try {
    await readiness(child)
  } catch (error) {
    await stop()
    throw error
  }
  const { close, ...figures } = readRedis(port)
  return {
    port,
    ...figures,
    async stop() {
      close()
      await stop()
    },
  }
}

export function readRedis(port: number): RedisFigures {
  const client = new Redis(port)
  const info = async (section: string, ...fields: readonly string[]) => {
    const text = await client.info(section)
    const figureOf = (field: string) => Number(new RegExp(`^${field}:(.*)$`, 'm').exec(text)?.[1])
    return fields.reduce((sum, field) => sum + figureOf(field), 0)
  }
  return {
    cpuUs: async () => (await info('cpu', 'used_cpu_user', 'used_cpu_sys')) * 1e6,
    usedBytes: () => info('memory', 'used_memory'),
    keys: () => client.dbsize(),
    scripts: async () => {
      const [, calls, us] = /^cmdstat_evalsha:calls=(\d+),usec=(\d+)/m.exec(await client.info('commandstats')) ?? []
      return { calls: Number(calls ?? 0), us: Number(us ?? 0) }
    },
    networkBytes: () => info('stats', 'total_net_input_bytes', 'total_net_output_bytes'),
    close: () => client.disconnect(),
  }
}

/** Starts `count` servers, and stops them when the work has ended or failed. */
export async function withRedis<T>(count: number, work: (servers: readonly RedisServer[]) => Promise<T>): Promise<T> {
  const servers: RedisServer[] = []
  try {
    for (let index = 0; index < count; index++) servers.push(await startRedis())
    return await work(servers)
  } finally {
    for (const server of servers) await server.stop()
  }
}

async function readiness(child: ChildProcess): Promise<void> {
  await once(child, 'spawn')
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream }) // stdout is a pipe, see above
  for await (const line of lines) if (line.includes('Ready to accept connections')) return
  throw new Error('redis-server exited before it was ready')
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  if (address === null || typeof address === 'string') throw new Error('no free port')
  return address.port
}
