// A real Redis of its own for a test: on a free port, in a temporary folder, gone when stopped.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
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

/** In a folder of its own, which goes with it. */
export async function launchRedis(
  folder: string,
  port: number,
  args: readonly string[],
  file: readonly string[] = [],
): Promise<RedisProcess> {
  const settings = ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', '', '--appendonly', 'no']
  const child = spawn('redis-server', [...file, ...settings, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  await started(child)
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const exit = once(child, 'exit')
      child.kill('SIGKILL') // nothing it holds is worth a clean end
      await exit
    }
    await rm(folder, { recursive: true, force: true })
  }
  return { url: `redis://127.0.0.1:${port}`, port, pid: child.pid ?? 0, stop }
}

function started(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let output = ''
    child.stdout?.on('data', (chunk: Buffer) => {
      output += chunk.toString()
      if (STARTED.test(output)) resolve()
    })
    child.once('error', (error) =>
      reject(new Error('redis-server cannot be started: is it installed?', { cause: error })),
    )
    child.once('exit', () => reject(new Error(`redis-server ended at once:\n${output}`)))
  })
}
