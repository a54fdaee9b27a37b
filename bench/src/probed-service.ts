// A service with every feature on, in its own process, and the CPU time of the longest turn of its event loop.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { startPostgres, startRedis } from 'sluice/testing'
import { freePort } from './redis-server.ts'

const MAIN = process.env.TURNS_MAIN ?? fileURLToPath(new URL('../../packages/server/bin/sluice.js', import.meta.url))
const PROBE = fileURLToPath(new URL('turn-probe.js', import.meta.url))
export const ADMIN_TOKEN = 'token-of-the-benchmark'
/** Work that goes on after the answer: activation of rules, events. */
const AFTER_MS = 20

const ENVOY_CONFIG = `domain: envoy
descriptors:
  - key: path
    rate_limit: { unit: day, requests_per_unit: 1000000 }
`

export type ProbedService = {
  /** `http://127.0.0.1:40123` */
  readonly address: string
  readonly grpcPort: number
  /** CPU time of the longest turn while `work` runs, in ms. */
  longestTurnMs(work: () => Promise<unknown>): Promise<number>
}

export async function withProbedService<T>(
  settings: readonly string[],
  use: (service: ProbedService) => Promise<T>,
): Promise<T> {
  const postgres = await startPostgres()
  const redis = await startRedis()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-turns-'))
  const envoy = join(folder, 'envoy.yaml')
  writeFileSync(envoy, ENVOY_CONFIG)
  const grpcPort = await freePort()
  const args = [
    ...['--port', '0', '--data-dir', folder, '--drain-ms', '0', '--log-level', 'error', '--admin-token', ADMIN_TOKEN],
    ...['--database', postgres.createDatabase(), '--redis', redis.url, '--grpc-port', String(grpcPort)],
    ...[
      '--envoy-config',
      envoy,
      '--envoy-domain',
      '*',
      '--trusted-proxies',
      '127.0.0.1',
      '--store-deadline-ms',
      '5000',
    ],
    ...[
      '--user-from',
      'jwt:sub',
      '--jwt-secret',
      'a-secret-of-the-benchmark-service',
      '--tenant-from',
      'cookie:tenant',
    ],
    ...settings,
  ]
  const child = spawn(process.execPath, ['--import', PROBE, MAIN, ...args], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  const exited = once(child, 'exit')
  try {
    const address = await new Promise<string>((resolve, reject) => {
      let printed = ''
      child.stdout?.setEncoding('utf8').on('data', (text: string) => {
        printed += text
        const [found] = /http:\/\/127\.0\.0\.1:\d+(?=\s)/.exec(printed) ?? []
        if (found !== undefined) resolve(found)
      })
      exited.then(([code]) => reject(new Error(`the service exited with code ${code}`)), reject)
    })
    const ask = async (message: 'start' | 'stop') => {
      child.send(message)
      const [answer] = await Promise.race([once(child, 'message'), exited.then(() => [{}])])
      return (answer as { longestMs?: number }).longestMs ?? Number.NaN
    }
    return await use({
      address,
      grpcPort,
      async longestTurnMs(work) {
        await ask('start')
        await work()
        await delay(AFTER_MS)
        return ask('stop')
      },
    })
  } finally {
    child.kill('SIGTERM')
    await exited
    await postgres.stop()
    await redis.stop()
    rmSync(folder, { recursive: true, force: true })
  }
}
