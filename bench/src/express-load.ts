// Sends rounds of requests to an Express application in its own process: 1,000 clients, Zipf-distributed.

import { fileURLToPath } from 'node:url'
import { httpLoad } from './http-load.ts'
import { startServer } from './http-server.ts'
import type { Contender } from './measure.ts'
import { freshKeys, seeded, zipf } from './zipf.ts'

const KEYS = 1000
const CALLS = 20_000
const CONNECTIONS = 32

/** Runs the named applications while `work` runs. */
export async function withExpress<Name extends string, T>(
  names: readonly Name[],
  argumentOf: (name: Name) => string,
  work: (contenders: Readonly<Record<Name, Contender>>) => Promise<T>,
  connections: number = CONNECTIONS,
): Promise<T> {
  const started: [Name, Contender][] = []
  try {
    for (const name of names) started.push([name, await application(name, argumentOf(name), connections)])
    return await work(Object.fromEntries(started) as Record<Name, Contender>)
  } finally {
    for (const [, contender] of started) await contender.close?.()
  }
}

async function application(name: string, argument: string, connections: number): Promise<Contender> {
  const script = fileURLToPath(new URL('./express-app.js', import.meta.url))
  const server = await startServer(script, [name, argument])
  const choose = zipf(KEYS, seeded(1))
  return {
    async round() {
      const users = freshKeys(CALLS, choose)
      const load = httpLoad(connections) // new connections per round, because Express closes idle ones
      const beforeUs = server.cpuUs()
      const startedMs = performance.now()
      await load.get(`${server.address}/api/v1/messages`, users)
      const seconds = (performance.now() - startedMs) / 1000
      load.close()
      return { 'cpu µs': (server.cpuUs() - beforeUs) / CALLS, 'requests/s': CALLS / seconds }
    },
    close: () => server.stop(),
  }
}
