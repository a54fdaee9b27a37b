// Starts the service with a gRPC port, and measures the CPU time of servers per call.

import { rmSync } from 'node:fs'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { grpcLoad } from './grpc-load.ts'
import { startServer } from './http-server.ts'
import type { Contender } from './measure.ts'
import { LIMIT } from './peers.ts'
import { requestOf } from './rate-limit-messages.ts'
import { freePort } from './redis-server.ts'
import { freshKeys, seeded, zipf } from './zipf.ts'

const KEYS = 100_000
const MAIN = fileURLToPath(new URL('../../packages/server/bin/sluice.js', import.meta.url))

/** Domain with a limit in `ENVOY_CONFIG`, and one that the rules decide about. */
export const ENVOY_DOMAIN = 'envoy'
export const RULES_DOMAIN = 'edge'

/** Configuration of envoyproxy/ratelimit with the same limit as the rule. */
export const ENVOY_CONFIG = `domain: ${ENVOY_DOMAIN}
descriptors:
  - key: path
    descriptors:
      - key: user
        rate_limit: { unit: day, requests_per_unit: ${LIMIT} }
`
const RULE = { rule_id: 'per_user', scope: 'per_user', limit: LIMIT, window: '1d' }

export type GrpcServer = {
  readonly port: number
  cpuUs(): number
  /** CPU time of its Redis. */
  storeUs?(): Promise<number>
  stop(): Promise<void>
}

/** Starts the service with one rule and `ENVOY_CONFIG`; `args` are further options. */
export async function startService(args: readonly string[] = []): Promise<GrpcServer> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-grpc-'))
  const cleanUp = () => rmSync(folder, { recursive: true, force: true })
  process.once('exit', cleanUp) // when the benchmark is interrupted
  const [rules, config] = [join(folder, 'rules.json'), join(folder, 'ratelimit.yaml')]
  await writeFile(rules, JSON.stringify({ rules: [RULE] }))
  await writeFile(config, ENVOY_CONFIG)
  const port = await freePort()
  const files = ['--envoy-domain', RULES_DOMAIN, '--rules', rules, '--envoy-config', config, '--data-dir', folder]
  const service = await startServer(MAIN, [
    ...['--port', '0', '--grpc-port', String(port), '--log-level', 'warn', ...files, ...args],
  ])
  return {
    port,
    cpuUs: () => service.cpuUs(),
    async stop() {
      await service.stop()
      cleanUp()
      process.off('exit', cleanUp)
    },
  }
}

export type Load = {
  readonly domain: string
  readonly calls: number
  readonly connections: number
  /** Per connection. */
  readonly outstanding: number
}

/** CPU time of a server and its Redis per call, for Zipf-distributed users. */
export function grpcCalls(server: GrpcServer, { domain, calls, connections, outstanding }: Load): Contender {
  const load = grpcLoad(server.port, connections, outstanding)
  const choose = zipf(KEYS, seeded(1))
  const storeUs = async () => (await server.storeUs?.()) ?? 0
  return {
    async round() {
      const messages = freshKeys(calls, choose).map((user) => requestOf(domain, user))
      const before = { store: await storeUs(), cpu: server.cpuUs() }
      const startedMs = performance.now()
      const admitted = await load.send(messages)
      const seconds = (performance.now() - startedMs) / 1000
      const cpu = (server.cpuUs() - before.cpu) / calls
      const store = ((await storeUs()) - before.store) / calls
      return { 'cpu µs': cpu + store, 'store µs': store, 'calls/s': calls / seconds, admitted: admitted / calls }
    },
    close: () => load.close(),
  }
}

export type OpenLoop = { readonly domain: string; readonly calls: number; readonly perSecond: number }

export async function openLoopP99Ms(server: GrpcServer, { domain, calls, perSecond }: OpenLoop): Promise<number> {
  const load = grpcLoad(server.port, 4, 0)
  try {
    const users = freshKeys(calls, zipf(KEYS, seeded(2)))
    const messages = users.map((user) => requestOf(domain, user))
    const latencies = (await load.sendAt(perSecond, messages)).sort((a, b) => a - b)
    return latencies[Math.ceil(latencies.length * 0.99) - 1] ?? Number.NaN
  } finally {
    load.close()
  }
}
