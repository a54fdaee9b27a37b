// Cost of ShouldRateLimit: CPU time of the service per call, relative to an echo on bare `node:http2`. The service has
// a memory store and decides by a rule, or by the configuration of envoyproxy/ratelimit. The echo on the service's own
// HTTP/2 server shows the share of the transport. Each server runs in its own process and gets the same bytes.

import { fileURLToPath } from 'node:url'
import { ENVOY_DOMAIN, type GrpcServer, grpcCalls, type Load, RULES_DOMAIN, startService } from '../grpc-service.ts'
import { startServer } from '../http-server.ts'
import { alternate, type Contender, pairedRatio, resultsOf } from '../measure.ts'
import type { Scenario } from '../report.ts'

const BATCHED = { domain: RULES_DOMAIN, calls: 20_000, connections: 4, outstanding: 32 } satisfies Load
const ONE = { domain: RULES_DOMAIN, calls: 2_000, connections: 1, outstanding: 1 } satisfies Load
const ECHO = fileURLToPath(new URL('../grpc-echo.js', import.meta.url))

export const scenario: Scenario = {
  what: 'ShouldRateLimit over gRPC, CPU time of the server',
  targets: { cpu_over_bare_http2: { atMost: 0.5 }, cpu_over_bare_http2_envoy_config: { atMost: 0.5 } },
  run: ({ rounds = 9 }) =>
    withServers(async ({ rules, envoy, lean, bare }) => {
      const contenders = {
        'rules, memory': grpcCalls(rules, BATCHED),
        'envoy config, memory': grpcCalls(envoy, { ...BATCHED, domain: ENVOY_DOMAIN }),
        'echo, lean stack': grpcCalls(lean, BATCHED),
        'echo, bare node:http2': grpcCalls(bare, BATCHED),
        'rules, one call at a time': grpcCalls(rules, ONE),
        'bare node:http2, one call at a time': grpcCalls(bare, ONE),
      } satisfies Record<string, Contender>
      const samples = await alternate(contenders, { rounds, warmups: 4 })
      for (const contender of Object.values(contenders)) contender.close?.()
      const overBare = (name: keyof typeof contenders) =>
        pairedRatio(samples[name], samples['echo, bare node:http2'], 'cpu µs')
      const [one, bareOne] = [samples['rules, one call at a time'], samples['bare node:http2, one call at a time']]
      return {
        results: [...resultsOf(samples, 'cpu µs', 'µs of CPU/call'), ...resultsOf(samples, 'calls/s', 'calls/s')],
        ratios: {
          cpu_over_bare_http2: overBare('rules, memory'),
          cpu_over_bare_http2_envoy_config: overBare('envoy config, memory'),
          cpu_over_bare_http2_echo: overBare('echo, lean stack'),
          cpu_over_bare_http2_unbatched: pairedRatio(one, bareOne, 'cpu µs'),
        },
      }
    }),
}

type Servers = Readonly<Record<'rules' | 'envoy' | 'lean' | 'bare', GrpcServer>>

async function withServers<T>(work: (servers: Servers) => Promise<T>): Promise<T> {
  const running: GrpcServer[] = []
  const started = async (starting: Promise<GrpcServer>) => {
    const server = await starting
    running.push(server)
    return server
  }
  try {
    return await work({
      rules: await started(startService()),
      envoy: await started(startService()),
      lean: await started(startEcho('lean')),
      bare: await started(startEcho('bare')),
    })
  } finally {
    for (const server of running) await server.stop()
  }
}

async function startEcho(stack: 'lean' | 'bare'): Promise<GrpcServer> {
  const server = await startServer(ECHO, [stack])
  return { ...server, port: Number(new URL(server.address).port) }
}
