// Quotas with a real Envoy: the filter of docs/guides/envoy-quotas.md as printed, in front of a server. One Envoy for
// all tests; each has a tenant of its own.

import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { parse } from 'yaml'
import { blocksOf } from '../../../../scripts/snippets.ts'
import { freePort } from '../../../sluice/src/testing/free-port.ts'
import { startServer } from '../../src/service/server.ts'
import type { GrpcStack } from '../../src/settings/grpc-settings.ts'
import { type EnvoyProcess, envoyMissing, startEnvoy } from '../grpc/envoy-process.ts'
import { start } from '../process.ts'
import { captureLog, clientOf, defaults } from '../service.ts'

const rulesOf = (limit: number) => `
- rule_id: tenants
  when: { tenant: { not: refill } }
  limit: ${limit}
  window: 1d
  scope: per_tenant
  algorithm: fixed_window
  consistency: strict
- { rule_id: refill, when: { tenant: refill }, limit: 10, window: 5s, scope: per_tenant, consistency: strict }
`
/** Requests that Envoy passes until it has received its first assignment. */
const BEFORE_ASSIGNMENT = 20
const POLL = { timeout: 60_000, interval: 100 }

const missing = envoyMissing()
if (missing !== undefined) process.stderr.write(`sluice: tests of quotas with Envoy are skipped: ${missing}\n`)

describe.skipIf(missing !== undefined)('Envoy with quotas', () => {
  const ports = { http: 0, admin: 0, grpc: 0 }
  let rules = ''
  /** The service in this process; undefined while another one has its port. */
  let service: Awaited<ReturnType<typeof startServer>> | undefined
  let address = ''
  let envoy: EnvoyProcess
  let app: Server

  const startService = async (grpcStack: GrpcStack) => {
    const settings = { ...defaults(), rules, port: 0, grpcPort: ports.grpc, grpcStack }
    service = await startServer(settings, captureLog().log, 100)
    address = service.address
  }

  beforeAll(async () => {
    for (const name of Object.keys(ports) as (keyof typeof ports)[]) ports[name] = await freePort()
    rules = join(mkdtempSync(join(tmpdir(), 'sluice-quotas-')), 'rules.yaml')
    writeFileSync(rules, rulesOf(60))
    app = createServer((_, response) => response.end('hello\n')).listen(0, '127.0.0.1')
    await once(app, 'listening')
    await startService('lean')
    envoy = await startEnvoy(bootstrap((app.address() as AddressInfo).port, ports), ports.admin)
  }, 60_000)

  afterAll(async () => {
    await envoy?.stop()
    await service?.close()
    app?.close()
    rmSync(dirname(rules), { recursive: true, force: true })
  })

  async function get(tenant: string): Promise<number> {
    const answer = await fetch(`http://127.0.0.1:${ports.http}/`, { headers: { 'x-tenant': tenant } })
    await answer.arrayBuffer()
    return answer.status
  }

  const taken = async (tenant: string) => {
    const { limit, remaining } = await clientOf(address).check({ tenant, dry_run: true })
    return Number(limit) - Number(remaining)
  }

  /** Subscribes, waits for a share, and returns how many requests pass before 20 are denied. */
  async function flood(tenant: string, max: number): Promise<number> {
    await get(tenant)
    await vi.waitFor(async () => expect(await taken(tenant), 'a share is reserved').toBeGreaterThan(0), POLL)
    let [passed, denied] = [0, 0]
    while (denied < 20) {
      if ((await get(tenant)) === 200) passed += 1
      else denied += 1
      expect(passed, 'requests that pass').toBeLessThan(max + BEFORE_ASSIGNMENT)
    }
    return passed
  }

  const untilPassed = (tenant: string) => vi.waitFor(async () => expect(await get(tenant)).toBe(200), POLL)

  test('a flood is denied by Envoy itself, within the units that were taken from the bucket', async () => {
    expect(await get('acme'), 'no_assignment_behavior: the service has not heard of it').toBe(200)
    expect(await flood('acme', 60)).toBeLessThanOrEqual((await taken('acme')) + BEFORE_ASSIGNMENT)
    expect(await get('another tenant')).toBe(200)
  })

  test('a denied bucket gets a share when units have refilled', async () => {
    await flood('refill', 60)
    await untilPassed('refill')
  })

  test('a higher limit is assigned without a restart', async () => {
    await flood('edited', 60)
    writeFileSync(rules, rulesOf(1000))
    await untilPassed('edited')
    await vi.waitFor(async () => expect(await taken('edited')).toBeGreaterThan(60), POLL)
    writeFileSync(rules, rulesOf(60))
  })

  test('a service that was closed or killed is replaced, on either stack: shares come from its buckets', async () => {
    const isAssigned = async () => {
      await get('restarted')
      expect(await taken('restarted')).toBeGreaterThan(0)
    }
    await flood('restarted', 60)
    await service?.close()
    service = undefined
    expect([200, 429]).toContain(await get('restarted'))
    const killed = await start(['--grpc-port', String(ports.grpc), '--rules', rules])
    address = killed.address
    await vi.waitFor(isAssigned, POLL)
    killed.signal('SIGKILL')
    await killed.ended()
    await startService('node')
    await vi.waitFor(isAssigned, POLL)
    await untilPassed('restarted')
    expect(await flood('restarted', 60)).toBeLessThanOrEqual((await taken('restarted')) + BEFORE_ASSIGNMENT)
  })
})

/** The filter of the guide. */
function quotas(): object {
  const [block] = blocksOf('docs/guides/envoy-quotas.md').filter(({ language }) => language === 'yaml')
  const [filter] = parse(block?.text ?? '[]') as object[]
  if (filter === undefined) throw new Error('the guide has no filter')
  return filter
}

function bootstrap(appPort: number, ports: { http: number; admin: number; grpc: number }): object {
  const router = { '@type': 'type.googleapis.com/envoy.extensions.filters.http.router.v3.Router' }
  const manager = {
    '@type': 'type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager',
    stat_prefix: 'http',
    route_config: { virtual_hosts: [{ name: 'all', domains: ['*'], routes: [route()] }] },
    http_filters: [quotas(), { name: 'router', typed_config: router }],
  }
  return {
    admin: { address: address(ports.admin) },
    static_resources: {
      listeners: [
        { address: address(ports.http), filter_chains: [{ filters: [{ name: 'http', typed_config: manager }] }] },
      ],
      clusters: [cluster('app', appPort, false), cluster('sluice', ports.grpc, true)],
    },
  }
}

function route(): object {
  return { match: { prefix: '/' }, route: { cluster: 'app' } }
}

function address(port: number): object {
  return { socket_address: { address: '127.0.0.1', port_value: port } }
}

function cluster(name: string, port: number, isHttp2: boolean): object {
  const http2 = {
    'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
      '@type': 'type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
      explicit_http_config: { http2_protocol_options: {} },
    },
  }
  return {
    name,
    type: 'STATIC',
    ...(isHttp2 ? { typed_extension_protocol_options: http2 } : {}),
    load_assignment: {
      cluster_name: name,
      endpoints: [{ lb_endpoints: [{ endpoint: { address: address(port) } }] }],
    },
  }
}
