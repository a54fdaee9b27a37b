// Starts a real Redis for a test: free port, temporary folder, removed when stopped.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { childStarted } from './child-started.ts'
import { freePort } from './free-port.ts'

export type RedisProcess = {
  readonly url: string
  readonly port: number
  readonly pid: number
  stop(): Promise<void>
}

const STARTED = /Ready to accept connections|Sentinel ID is/

export async function startRedis(args: readonly string[] = []): Promise<RedisProcess> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-redis-'))
  return launchRedis(folder, await freePort(), args)
}

/** Starts Redis in `folder`, which is removed when it stops. */
export async function launchRedis(
  folder: string,
  port: number,
  args: readonly string[],
  file: readonly string[] = [],
): Promise<RedisProcess> {
  const settings = ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--appendonly', 'no']
  const child = spawn('redis-server', [...file, ...settings, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  await childStarted(child, 'redis-server', STARTED)
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const exit = once(child, 'exit')
      child.kill('SIGKILL') // its data is discarded: no clean shutdown needed
      await exit
    }
    await rm(folder, { recursive: true, force: true })
  }
  return { url: `redis://127.0.0.1:${port}`, port, pid: child.pid ?? 0, stop }
}
