// Cost of the gateway: its CPU time per request relative to a bare proxy with the same library. Both run in their own
// process in front of the same application, with a memory store.

import { rmSync } from 'node:fs'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type HttpLoad, httpLoad } from '../http-load.ts'
import { type HttpServer, startServer } from '../http-server.ts'
import { alternate, type Contender, pairedRatio, resultsOf } from '../measure.ts'
import type { Scenario } from '../report.ts'
import { freshKeys, seeded, zipf } from '../zipf.ts'
import { RULES } from './memory.ts'

const PATH = '/api/v1/messages?page=1'
const KEYS = 100_000
const CALLS = 10_000
const CONNECTIONS = 32

export const scenario: Scenario = {
  what: 'requests through the gateway, CPU time of the gateway',
  targets: { cpu_over_bare_proxy: { atMost: 1.2 } },
  async run({ rounds = 9 }) {
    const load = httpLoad(CONNECTIONS)
    try {
      return await withProxies(async (gateway, bare) => {
        const contenders = { 'sluice gateway': requests(gateway, load), 'bare undici proxy': requests(bare, load) }
        const samples = await alternate(contenders, { rounds, warmups: 3 })
        const ratio = pairedRatio(samples['sluice gateway'], samples['bare undici proxy'], 'cpu µs')
        return {
          results: [
            ...resultsOf(samples, 'cpu µs', 'µs of CPU/request'),
            ...resultsOf(samples, 'requests/s', 'requests/s'),
          ],
          ratios: { cpu_over_bare_proxy: ratio },
        }
      })
    } finally {
      load.close()
    }
  },
}

async function withProxies<T>(work: (gateway: HttpServer, bare: HttpServer) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-gateway-'))
  const cleanUp = () => rmSync(folder, { recursive: true, force: true })
  process.once('exit', cleanUp) // when the benchmark is interrupted
  const servers: HttpServer[] = []
  const started = async (script: string, args: readonly string[]) => {
    const server = await startServer(fileURLToPath(new URL(script, import.meta.url)), args)
    servers.push(server)
    return server
  }
  try {
    const rulesPath = join(folder, 'rules.json')
    await writeFile(rulesPath, JSON.stringify({ rules: RULES }))
    const { address: app } = await started('../proxied-app.js', [])
    const addresses = ['--upstream', app, '--listen', '127.0.0.1:0', '--api-port', '0']
    const rules = ['--rules', rulesPath, '--user-from', 'header:x-user', '--log-level', 'warn', '--drain-ms', '0']
    const gateway = await started('../../../packages/server/bin/sluice.js', ['gateway', ...addresses, ...rules])
    return await work(gateway, await started('../bare-proxy.js', [app]))
  } finally {
    for (const server of servers.reverse()) await server.stop()
    cleanUp()
  }
}

function requests(proxy: HttpServer, load: HttpLoad): Contender {
  const choose = zipf(KEYS, seeded(1))
  return {
    async round() {
      const users = freshKeys(CALLS, choose)
      const beforeUs = proxy.cpuUs()
      const startedMs = performance.now()
      await load.get(proxy.address + PATH, users)
      const seconds = (performance.now() - startedMs) / 1000
      return { 'cpu µs': (proxy.cpuUs() - beforeUs) / CALLS, 'requests/s': CALLS / seconds }
    },
  }
}
