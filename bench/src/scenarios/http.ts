// Cost of a decision on top of HTTP: CPU time of the service per check relative to a bare Fastify route with the same
// schemas and response. Both run in their own process; the service has a memory store.

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

const PATH = '/api/v1/rate-limit/check'
const KEYS = 100_000
const CALLS = 10_000
const CONNECTIONS = 32
/** The rest of the documented example. */
const FACTS = { endpoint: '/api/v1/messages', method: 'POST', ip_address: '203.0.113.42' }

export const scenario: Scenario = {
  what: 'check over HTTP, CPU time of the server',
  targets: { cpu_vs_bare_fastify: { atMost: 1.3 } },
  async run({ rounds = 9 }) {
    const load = httpLoad(CONNECTIONS)
    try {
      return await withServers(async (service, bare) => {
        const contenders = { 'sluice service': checks(service, load), 'bare Fastify route': checks(bare, load) }
        const samples = await alternate(contenders, { rounds, warmups: 3 })
        const ratio = pairedRatio(samples['sluice service'], samples['bare Fastify route'], 'cpu µs')
        return {
          results: [...resultsOf(samples, 'cpu µs', 'µs of CPU/check'), ...resultsOf(samples, 'checks/s', 'checks/s')],
          ratios: { cpu_vs_bare_fastify: ratio },
        }
      })
    } finally {
      load.close()
    }
  },
}

async function withServers<T>(work: (service: HttpServer, bare: HttpServer) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-http-'))
  const cleanUp = () => rmSync(folder, { recursive: true, force: true })
  process.once('exit', cleanUp) // when the benchmark is interrupted
  const servers: HttpServer[] = []
  try {
    const rulesPath = join(folder, 'rules.json')
    await writeFile(rulesPath, JSON.stringify({ rules: RULES }))
    const args = ['--port', '0', '--rules', rulesPath, '--log-level', 'warn']
    const service = await startServer(scriptAt('../../../packages/server/bin/sluice.js'), args)
    servers.push(service)
    const bare = await startServer(scriptAt('../bare-fastify.js'), [JSON.stringify(await schemasOf(service))])
    servers.push(bare)
    return await work(service, bare)
  } finally {
    for (const server of servers) await server.stop()
    cleanUp()
  }
}

function checks(server: HttpServer, load: HttpLoad): Contender {
  const choose = zipf(KEYS, seeded(1))
  return {
    async round() {
      const bodies = freshKeys(CALLS, choose).map((client_id) => JSON.stringify({ client_id, ...FACTS }))
      const beforeUs = server.cpuUs()
      const startedMs = performance.now()
      await load.post(server.address + PATH, bodies)
      const seconds = (performance.now() - startedMs) / 1000
      return { 'cpu µs': (server.cpuUs() - beforeUs) / CALLS, 'checks/s': CALLS / seconds }
    },
  }
}

type Api = {
  paths: Record<string, { post: { requestBody: { content: Record<string, { schema: object }> } } }>
  components: { schemas: Record<string, object> }
}

/** Schemas of the route from /openapi.json, so that the bare route stays in step. */
async function schemasOf({ address }: HttpServer): Promise<{ path: string; body: object; answer: object }> {
  const api = (await (await fetch(`${address}/openapi.json`)).json()) as Api
  const body = api.paths[PATH]?.post.requestBody.content['application/json']?.schema
  const answer = api.components.schemas.CheckAnswer
  if (body === undefined || answer === undefined) throw new Error(`/openapi.json does not contain ${PATH}`)
  return { path: PATH, body, answer }
}

function scriptAt(path: string): string {
  return fileURLToPath(new URL(path, import.meta.url))
}
