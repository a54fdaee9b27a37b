// Runs services on one Redis, each in its own process, and measures the cost of checks over HTTP.

import { rmSync } from 'node:fs'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { CheckCosts } from './capacity-model.ts'
import { httpLoad } from './http-load.ts'
import { type HttpServer, startServer } from './http-server.ts'
import { type RedisServer, withRedis } from './redis-server.ts'

const MAIN = fileURLToPath(new URL('../../packages/server/bin/sluice.js', import.meta.url))
const PATH = '/api/v1/rate-limit/check'
const CONNECTIONS = 32
const BURST = 500

export class ServiceTestbed {
  readonly redis: RedisServer
  readonly #services: readonly HttpServer[]

  /** Runs services with these rules while `work` runs. */
  static with<T>(count: number, rules: readonly object[], work: (testbed: ServiceTestbed) => Promise<T>): Promise<T> {
    return withRedis(1, async (servers) => {
      const redis = servers[0] as RedisServer // exactly one
      const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-services-'))
      const cleanUp = () => rmSync(folder, { recursive: true, force: true })
      process.once('exit', cleanUp) // when the benchmark is interrupted
      const services: HttpServer[] = []
      try {
        const path = join(folder, 'rules.json')
        await writeFile(path, JSON.stringify({ rules }))
        const settings = ['--redis', `redis://127.0.0.1:${redis.port}`, '--store-deadline-ms', '10000']
        const args = ['--port', '0', '--rules', path, '--data-dir', folder, '--log-level', 'warn', ...settings]
        for (let index = 0; index < count; index += 1) services.push(await startServer(MAIN, args))
        return await work(new ServiceTestbed(redis, services))
      } finally {
        for (const service of services) await service.stop()
        cleanUp()
        process.off('exit', cleanUp)
      }
    })
  }

  get services(): number {
    return this.#services.length
  }

  private constructor(redis: RedisServer, services: readonly HttpServer[]) {
    this.redis = redis
    this.#services = services
  }

  /** One check per user, in bursts to one service after the other, because few cores cannot load many at once. */
  async check(users: readonly string[]): Promise<CheckCosts> {
    const before = await this.#spent()
    const load = httpLoad(CONNECTIONS)
    try {
      for (let first = 0; first < users.length; first += BURST) {
        const bodies = users
          .slice(first, first + BURST)
          .map((client_id) => JSON.stringify({ client_id, endpoint: '/' }))
        const { address } = this.#services[(first / BURST) % this.#services.length] as HttpServer // never empty
        await load.post(address + PATH, bodies)
      }
    } finally {
      load.close()
    }
    const after = await this.#spent()
    const perCheck = (field: keyof CheckCosts) => (after[field] - before[field]) / users.length
    return {
      nodeUs: perCheck('nodeUs'),
      redisUs: perCheck('redisUs'),
      networkBytes: perCheck('networkBytes'),
      redisRequests: perCheck('redisRequests'),
    }
  }

  async #spent(): Promise<CheckCosts> {
    const redisRequests = await Promise.all(this.#services.map(redisRequestsOf))
    return {
      nodeUs: this.#services.reduce((sum, service) => sum + service.cpuUs(), 0),
      redisUs: await this.redis.cpuUs(),
      networkBytes: await this.redis.networkBytes(),
      redisRequests: redisRequests.reduce((sum, count) => sum + count, 0),
    }
  }
}

/** Requests that a service has sent to Redis. */
async function redisRequestsOf({ address }: HttpServer): Promise<number> {
  const text = await (await fetch(`${address}/metrics`)).text()
  return Number(/^sluice_store_batch_requests_sum (\S+)$/m.exec(text)?.[1])
}
