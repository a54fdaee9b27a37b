// examples/envoy/ in a real Envoy, with the compiled service behind it: floods, debits after the response, a killed
// service, mTLS. One Envoy has a listener for each of these.

import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { parse } from 'yaml'
import { freePort } from '../../../sluice/src/testing/free-port.ts'
import { startServer } from '../../src/service/server.ts'
import { type Running, start } from '../process.ts'
import { captureLog, defaults, ruleFile } from '../service.ts'
import { type EnvoyProcess, envoyMissing, startEnvoy } from './envoy-process.ts'

const file = (path: string) => fileURLToPath(new URL(`../../../../${path}`, import.meta.url))
const pem = (name: string) => file(`packages/server/test/fixtures/tls/${name}`)
const CONFIG = file('examples/envoy/ratelimit.yaml')
const POLL = { timeout: 30_000, interval: 20 }
const LISTENERS = ['allows', 'denies', 'tls', 'plainToTls'] as const

// biome-ignore lint/suspicious/noExplicitAny: the configuration of Envoy has no types
type Any = any

const missing = envoyMissing()
if (missing !== undefined) process.stderr.write(`sluice: tests of Envoy are skipped: ${missing}\n`)

describe.skipIf(missing !== undefined)('Envoy', () => {
  let envoy: EnvoyProcess
  let app: Server
  const ports: Record<(typeof LISTENERS)[number] | 'grpc' | 'tlsGrpc' | 'admin', number> = {
    ...{ allows: 0, denies: 0, tls: 0, plainToTls: 0, grpc: 0, tlsGrpc: 0, admin: 0 },
  }
  let clients = 0

  beforeAll(async () => {
    app = createServer((_, response) => response.setHeader('x-tokens', '60').end('hello\n')).listen(0, '127.0.0.1')
    await once(app, 'listening')
    for (const name of Object.keys(ports) as (keyof typeof ports)[]) ports[name] = await freePort()
    envoy = await startEnvoy(bootstrap((app.address() as AddressInfo).port), ports.admin)
  })

  afterAll(async () => {
    await envoy?.stop()
    app?.close()
  })

  /** The example with one listener per case. Clients are told apart by X-Forwarded-For. */
  function bootstrap(appPort: number): object {
    const example: Any = parse(readFileSync(file('examples/envoy/envoy.yaml'), 'utf8'))
    const { listeners, clusters } = example.static_resources
    example.admin.address.socket_address.port_value = ports.admin
    const [appCluster, sluice] = clusters
    endpoint(appCluster).port_value = appPort
    endpoint(sluice).port_value = ports.grpc
    const secure = { ...structuredClone(sluice), name: 'sluice_tls', transport_socket: tlsSocket(true) }
    const anonymous = { ...structuredClone(sluice), name: 'sluice_anonymous', transport_socket: tlsSocket(false) }
    for (const cluster of [secure, anonymous]) endpoint(cluster).port_value = ports.tlsGrpc
    clusters.push(secure, anonymous)
    const cluster = { allows: 'sluice', denies: 'sluice', tls: 'sluice_tls', plainToTls: 'sluice_anonymous' }
    example.static_resources.listeners = LISTENERS.map((name) => {
      const listener = structuredClone(listeners[0])
      listener.address.socket_address.port_value = ports[name]
      const manager = listener.filter_chains[0].filters[0].typed_config
      manager.use_remote_address = false
      const limit = manager.http_filters[0].typed_config
      limit.failure_mode_deny = name !== 'allows'
      limit.timeout = '2s' // a busy machine
      limit.rate_limit_service.grpc_service.envoy_grpc.cluster_name = cluster[name]
      return listener
    })
    return example
  }

  function startService(...more: string[]): Promise<Running> {
    const rules = ruleFile('[]\n')
    const grpc = ['--grpc-port', String(ports.grpc), '--envoy-config', CONFIG, '--rules', rules]
    return start([...grpc, '--envoy-headers', 'draft-03', ...more])
  }

  /** Each caller is a client of its own. */
  function newClient(): string {
    clients += 1
    return `198.51.100.${clients}`
  }

  function get(listener: (typeof LISTENERS)[number], address: string, user?: string): Promise<Response> {
    const headers = { 'x-forwarded-for': address, ...(user && { 'x-user': user }) }
    return fetch(`http://127.0.0.1:${ports[listener]}/`, { headers })
  }

  /** Envoy connects to the service in the background. */
  async function untilServed(listener: (typeof LISTENERS)[number]): Promise<void> {
    const served = async () => {
      const answer = await get(listener, newClient())
      expect(answer.headers.get('x-ratelimit-limit')).not.toBeNull()
    }
    await vi.waitFor(served, POLL)
  }

  test('a flood gets 429 with headers, another client is served, and a banned one is not', async () => {
    await startService()
    await untilServed('allows')
    const address = newClient()
    const answers = []
    for (let request = 0; request < 20; request += 1) answers.push(await get('allows', address))
    const admitted = answers.filter(({ status }) => status === 200)
    const refused = answers.filter(({ status }) => status === 429)
    // Up to two windows, if a minute ends meanwhile.
    expect(admitted.length % 5).toBe(0)
    expect(admitted.length).toBeLessThanOrEqual(10)
    expect(admitted.length + refused.length).toBe(20)
    const [first, last] = [admitted[0]?.headers, refused.at(-1)?.headers]
    expect(first?.get('x-ratelimit-limit')).toBe('5, 5;w=60;name="per-address"')
    expect(first?.get('ratelimit-limit')).toBe('5, 5;w=60;name="per-address"')
    expect(first?.get('ratelimit-remaining')).toBe('4')
    expect(last?.get('ratelimit-remaining')).toBe('0')
    expect(last?.get('retry-after')).toBe(last?.get('ratelimit-reset'))
    expect((await get('allows', newClient())).status).toBe(200)
    expect((await get('allows', '203.0.113.66')).status).toBe(429)
  })

  test('tokens are charged when a response ends, and 0 hits refuse a user who has none left', async () => {
    await startService()
    await untilServed('denies')
    // 60 tokens per response, 100 per hour: the second response exceeds them.
    const askUntilRefused = async () => {
      const { status } = await get('denies', newClient(), 'ann')
      expect(status).toBe(429)
    }
    await vi.waitFor(askUntilRefused, POLL)
    expect((await get('denies', newClient(), 'bob')).status).toBe(200)
  })

  test('while the service is dead failure_mode_deny decides, and a new one is used at once', async () => {
    const service = await startService()
    await Promise.all([untilServed('allows'), untilServed('denies')])
    service.signal('SIGKILL')
    await service.ended()
    for (let request = 0; request < 8; request += 1) expect((await get('allows', '192.0.2.1')).status).toBe(200)
    expect((await get('denies', '192.0.2.1')).status).toBe(500)
    await startService()
    await Promise.all([untilServed('allows'), untilServed('denies')])
    expect((await get('denies', newClient())).status).toBe(200)
  })

  test('with mTLS, only a client with a certificate is served', async () => {
    const { log } = captureLog()
    const server = await startServer(
      {
        ...{ ...defaults(), port: 0, rules: ruleFile('[]\n'), grpcPort: ports.tlsGrpc, envoyConfig: CONFIG },
        ...{ tlsCert: pem('server.pem'), tlsKey: pem('server.key'), tlsClientCa: pem('ca.pem'), checks: 'token' },
      },
      log,
      100,
    )
    onTestFinished(() => server.close())
    await untilServed('tls')
    const address = newClient()
    const statuses = []
    for (let request = 0; request < 15; request += 1) statuses.push((await get('tls', address)).status)
    expect(new Set(statuses)).toEqual(new Set([200, 429]))
    expect((await get('plainToTls', newClient())).status).toBe(500)
  })
})

function endpoint(cluster: Any): { port_value: number } {
  return cluster.load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address
}

function tlsSocket(hasCertificate: boolean): object {
  const certificate = {
    certificate_chain: { filename: pem('client.pem') },
    private_key: { filename: pem('client.key') },
  }
  return {
    name: 'envoy.transport_sockets.tls',
    typed_config: {
      '@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext',
      sni: 'localhost',
      common_tls_context: {
        alpn_protocols: ['h2'],
        ...(hasCertificate && { tls_certificates: [certificate] }),
        validation_context: { trusted_ca: { filename: pem('ca.pem') } },
      },
    },
  }
}
