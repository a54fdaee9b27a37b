// Remote leases compared with a check over HTTP: CPU time per check of the gateway, the service and Redis together.
// 10 k Zipf-distributed keys, 100 per second each with a burst of 100, for both. The CPU time of the load generator,
// from a run without a limiter, is subtracted; that of the HTTP client is a cost of checks over HTTP.

import { rmSync } from 'node:fs'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Limiter } from 'sluice'
import { createRemoteLimiter } from 'sluice/remote'
import { httpLoad } from '../http-load.ts'
import { type HttpServer, startServer } from '../http-server.ts'
import { perSecond, runLoad, sampleOf } from '../leased-load.ts'
import { alternate, type Contender, median, pairedRatio, resultsOf } from '../measure.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Scenario } from '../report.ts'
import { freshKeys, seeded, zipf } from '../zipf.ts'

const MAIN = fileURLToPath(new URL('../../../packages/server/bin/sluice.js', import.meta.url))
const PATH = '/api/v1/rate-limit/check'
const KEYS = 10_000
const CHECKS = 500_000
const CALLS = 5_000
const CONNECTIONS = 32

/** Measures the load generator itself: keys, subjects, and the comparison with exact buckets. */
const NO_LIMITER = { decide: () => ({ allowed: true }) } as unknown as Limiter

type Name = 'remote leases' | 'HTTP'

export const scenario: Scenario = {
  what: 'remote leases, checks per second of CPU time of gateway, service and Redis, 10 k Zipf keys, 100/s each',
  targets: { vs_http_check: { atLeast: 20 } },
  run: ({ rounds = 5 }) =>
    withRedis(1, async (servers) => {
      const redis = servers[0] as RedisServer // exactly one
      return withService(redis, async (service, grpcPort) => {
        const compared = await contenders(redis, service, grpcPort)
        const samples = await alternate(compared, { rounds, warmups: 2 })
        // A limiter that is not closed keeps the process running.
        for (const contender of Object.values(compared)) await contender.close?.()
        const ours = samples['remote leases']
        const all = (field: string) => ours.map((sample) => sample[field] ?? Number.NaN)
        return {
          results: resultsOf(samples, 'checks/cpu s', 'checks/s of CPU'),
          ratios: {
            vs_http_check: pairedRatio(ours, samples.HTTP, 'checks/cpu s'),
            local_share: median(all('local')),
          },
        }
      })
    }),
}

async function contenders(
  redis: RedisServer,
  service: HttpServer,
  grpcPort: number,
): Promise<Readonly<Record<Name, Contender>>> {
  const limiter = await createRemoteLimiter({ url: `http://127.0.0.1:${grpcPort}`, deadlineMs: 10_000 })
  const load = httpLoad(CONNECTIONS)
  const spentUs = async () => {
    const { user, system } = process.cpuUsage()
    return user + system + service.cpuUs() + (await redis.cpuUs())
  }
  const measured = async <T>(work: () => Promise<T>) => {
    const before = await spentUs()
    const result = await work()
    return { result, cpuSeconds: ((await spentUs()) - before) / 1e6 }
  }
  const [chooseRemote, chooseHttp] = [zipf(KEYS, seeded(1)), zipf(KEYS, seeded(2))]
  return {
    'remote leases': {
      async round() {
        const { cpuSeconds: harness } = await measured(() => runLoad({ limiter: NO_LIMITER }, chooseRemote, CHECKS))
        const { result, cpuSeconds } = await measured(() => runLoad({ limiter }, chooseRemote, CHECKS))
        return { ...sampleOf(result), 'checks/cpu s': CHECKS / (cpuSeconds - harness) }
      },
    },
    HTTP: {
      async round() {
        const bodies = freshKeys(CALLS, chooseHttp).map((client_id) => JSON.stringify({ client_id }))
        const { cpuSeconds } = await measured(() => load.post(service.address + PATH, bodies))
        return { 'checks/cpu s': CALLS / cpuSeconds }
      },
      async close() {
        load.close()
        await limiter.close()
      },
    },
  }
}

async function withService<T>(
  redis: RedisServer,
  work: (service: HttpServer, grpcPort: number) => Promise<T>,
): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-remote-'))
  const cleanUp = () => rmSync(folder, { recursive: true, force: true })
  process.once('exit', cleanUp) // when the benchmark is interrupted
  const path = join(folder, 'rules.json')
  await writeFile(path, JSON.stringify({ rules: [perSecond(0)] }))
  const grpcPort = await freePort()
  const store = ['--redis', `redis://127.0.0.1:${redis.port}`, '--store-deadline-ms', '10000']
  const ports = ['--port', '0', '--grpc-port', String(grpcPort)]
  const service = await startServer(MAIN, [
    ...ports,
    '--rules',
    path,
    '--data-dir',
    folder,
    '--log-level',
    'warn',
    ...store,
  ])
  try {
    return await work(service, grpcPort)
  } finally {
    await service.stop()
    cleanUp()
    process.off('exit', cleanUp)
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().on('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number }
      server.close(() => resolve(port))
    })
  })
}
