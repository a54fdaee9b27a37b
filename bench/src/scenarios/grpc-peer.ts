// ShouldRateLimit compared with other services, on the same load: CPU time per call of the process and its Redis, and
// the p99 latency at a fixed rate. Ours leases from Redis in native mode; envoyproxy/ratelimit asks Redis for each
// call.

import { rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildEnvoyRatelimit, startEnvoyRatelimit } from '../envoy-ratelimit.ts'
import {
  ENVOY_DOMAIN,
  type GrpcServer,
  grpcCalls,
  type Load,
  openLoopP99Ms,
  RULES_DOMAIN,
  startService,
} from '../grpc-service.ts'
import { alternate, type Contender, pairedRatio, resultsOf } from '../measure.ts'
import { type RedisServer, withRedis } from '../redis-server.ts'
import type { Outcome, Scenario } from '../report.ts'

const LOAD = { calls: 10_000, connections: 4, outstanding: 32 } satisfies Omit<Load, 'domain'>
const OPEN_LOOP = { perSecond: 2_000, calls: 4_000 }
/** Implicit pipelining, off by default. The window is the default of its Redis client. */
const PIPELINED = { REDIS_PIPELINE_WINDOW: '150us' }
const NO_LIMITADOR =
  'cpu_vs_limitador_memory: the server of Limitador is not on crates.io, which has only its library (crate limitador)'

export const scenario: Scenario = {
  what: 'ShouldRateLimit on Redis, CPU time of service and Redis',
  targets: { cpu_vs_envoy_ratelimit: { atMost: 0.4 }, p99_vs_envoy_ratelimit: { atMost: 1.15 } },
  async run({ rounds = 5 }) {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-peers-'))
    const cleanUp = () => rmSync(folder, { recursive: true, force: true })
    process.once('exit', cleanUp) // when the benchmark is interrupted
    try {
      const built = await buildEnvoyRatelimit(folder)
      if ('path' in built) return await compare(built.path, rounds)
      const skipped = [`cpu_vs_envoy_ratelimit: ${built.missing}`, NO_LIMITADOR]
      return { results: [], ratios: {}, skipped }
    } finally {
      cleanUp()
      process.off('exit', cleanUp)
    }
  },
}

type Servers = Readonly<Record<'ours' | 'peer' | 'pipelined', GrpcServer>>

const compare = (binary: string, rounds: number): Promise<Outcome> =>
  withServers(binary, async ({ ours, peer, pipelined }) => {
    const contenders = {
      'sluice, leased': grpcCalls(ours, { ...LOAD, domain: RULES_DOMAIN }),
      'envoyproxy/ratelimit': grpcCalls(peer, { ...LOAD, domain: ENVOY_DOMAIN }),
      'envoyproxy/ratelimit, pipelined': grpcCalls(pipelined, { ...LOAD, domain: ENVOY_DOMAIN }),
    } satisfies Record<string, Contender>
    const samples = await alternate(contenders, { rounds, warmups: 3 })
    for (const contender of Object.values(contenders)) contender.close?.()
    const paced = {
      'sluice, leased': latency(ours, RULES_DOMAIN),
      'envoyproxy/ratelimit': latency(peer, ENVOY_DOMAIN),
      'envoyproxy/ratelimit, pipelined': latency(pipelined, ENVOY_DOMAIN),
    } satisfies Record<string, Contender>
    const latencies = await alternate(paced, { rounds, warmups: 1 })
    const versus = (name: keyof typeof contenders) => pairedRatio(samples['sluice, leased'], samples[name], 'cpu µs')
    const p99 = pairedRatio(latencies['sluice, leased'], latencies['envoyproxy/ratelimit'], 'p99 ms')
    return {
      results: [
        ...resultsOf(samples, 'cpu µs', 'µs of CPU/call'),
        ...resultsOf(samples, 'store µs', 'of it in Redis'),
        ...resultsOf(latencies, 'p99 ms', `ms p99 at ${OPEN_LOOP.perSecond}/s`),
      ],
      ratios: {
        cpu_vs_envoy_ratelimit: versus('envoyproxy/ratelimit'),
        cpu_vs_envoy_ratelimit_pipelined: versus('envoyproxy/ratelimit, pipelined'),
        p99_vs_envoy_ratelimit: p99,
      },
      skipped: [NO_LIMITADOR],
    }
  })

function latency(server: GrpcServer, domain: string): Contender {
  return { round: async () => ({ 'p99 ms': await openLoopP99Ms(server, { ...OPEN_LOOP, domain }) }) }
}

function withServers<T>(binary: string, work: (servers: Servers) => Promise<T>): Promise<T> {
  return withRedis(3, async (redis) => {
    const [first, second, third] = redis as [RedisServer, RedisServer, RedisServer]
    const running: GrpcServer[] = []
    const started = async (starting: Promise<GrpcServer>) => {
      const server = await starting
      running.push(server)
      return server
    }
    const leased = ['--redis', `redis://127.0.0.1:${first.port}`, '--store-deadline-ms', '10000']
    try {
      const ours = await started(startService(leased))
      return await work({
        ours: { ...ours, storeUs: () => first.cpuUs() },
        peer: await started(startEnvoyRatelimit(binary, second)),
        pipelined: await started(startEnvoyRatelimit(binary, third, PIPELINED)),
      })
    } finally {
      for (const server of running) await server.stop()
    }
  })
}
