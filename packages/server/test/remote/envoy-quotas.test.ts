// Quotas with a real Envoy: the filter of docs/guides/envoy-quotas.md, in front of a server.

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { freePort } from '../../../sluice/src/testing/free-port.ts'
import { startServer } from '../../src/service/server.ts'
import { envoyMissing, startEnvoy } from '../grpc/envoy-process.ts'
import { captureLog, defaults, ruleFile } from '../service.ts'

const RULES = `
- { rule_id: tenants, limit: 60, window: 1h, scope: per_tenant, algorithm: fixed_window, consistency: strict }
`
/** Requests that Envoy passes until it has received its first assignment. */
const BEFORE_ASSIGNMENT = 20
const TYPE = 'type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3'
const POLL = { timeout: 30_000, interval: 50 }

const missing = envoyMissing()
if (missing !== undefined) process.stderr.write(`sluice: tests of quotas with Envoy are skipped: ${missing}\n`)

async function startAll() {
  const settings = { ...defaults(), rules: ruleFile(RULES), port: 0, grpcPort: 0 }
  const service = await startServer(settings, captureLog().log, 500)
  onTestFinished(() => service.close())
  const app = createServer((_, response) => response.end('hello\n')).listen(0, '127.0.0.1')
  onTestFinished(() => void app.close())
  await once(app, 'listening')
  const ports = { http: await freePort(), admin: await freePort() }
  const grpcPort = Number(service.grpcAddress?.split(':').at(-1))
  const envoy = await startEnvoy(bootstrap((app.address() as AddressInfo).port, grpcPort, ports), ports.admin)
  onTestFinished(() => envoy.stop())
  const get = async (tenant: string) => {
    const { status } = await fetch(`http://127.0.0.1:${ports.http}/`, { headers: { 'x-tenant': tenant } })
    return status
  }
  return { service, get }
}

describe.skipIf(missing !== undefined)('Envoy with quotas', () => {
  test('a flood is denied by Envoy itself, within the units that were taken from the bucket', async () => {
    const { service, get } = await startAll()
    expect(await get('acme'), 'no_assignment_behavior: the service has not heard of it').toBe(200)
    const taken = async () => 60 - ((await service.limiter.peek({ tenant: 'acme' })).remaining ?? 0)
    await vi.waitFor(async () => expect(await taken(), 'a share is reserved').toBeGreaterThan(0), POLL)
    let [passed, denied] = [0, 0]
    while (denied < 20) {
      if ((await get('acme')) === 200) passed += 1
      else denied += 1
      expect(passed, 'requests that pass').toBeLessThan(60 + BEFORE_ASSIGNMENT)
    }
    expect(passed).toBeLessThanOrEqual((await taken()) + BEFORE_ASSIGNMENT)
    expect(await get('another tenant')).toBe(200)
  })
})

function bootstrap(appPort: number, grpcPort: number, ports: { http: number; admin: number }): object {
  const header = {
    '@type': 'type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput',
    header_name: 'x-tenant',
  }
  const quotas = {
    '@type': `${TYPE}.RateLimitQuotaFilterConfig`,
    domain: 'edge',
    rlqs_server: { envoy_grpc: { cluster_name: 'sluice' } },
    bucket_matchers: {
      matcher_list: {
        matchers: [
          {
            predicate: {
              single_predicate: {
                input: { name: 'tenant', typed_config: header },
                value_match: { safe_regex: { google_re2: {}, regex: '.+' } },
              },
            },
            on_match: {
              action: {
                name: 'bucket',
                typed_config: {
                  '@type': `${TYPE}.RateLimitQuotaBucketSettings`,
                  bucket_id_builder: {
                    bucket_id_builder: { tenant: { custom_value: { name: 'tenant', typed_config: header } } },
                  },
                  reporting_interval: '5s',
                  no_assignment_behavior: { fallback_rate_limit: { blanket_rule: 'ALLOW_ALL' } },
                  expired_assignment_behavior: {
                    expired_assignment_behavior_timeout: '60s',
                    fallback_rate_limit: { blanket_rule: 'ALLOW_ALL' },
                  },
                  deny_response_settings: { http_status: { code: 429 } },
                },
              },
            },
          },
        ],
      },
    },
  }
  const router = { '@type': 'type.googleapis.com/envoy.extensions.filters.http.router.v3.Router' }
  const manager = {
    '@type': 'type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager',
    stat_prefix: 'http',
    route_config: { virtual_hosts: [{ name: 'all', domains: ['*'], routes: [route()] }] },
    http_filters: [
      { name: 'quotas', typed_config: quotas },
      { name: 'router', typed_config: router },
    ],
  }
  return {
    admin: { address: address(ports.admin) },
    static_resources: {
      listeners: [
        { address: address(ports.http), filter_chains: [{ filters: [{ name: 'http', typed_config: manager }] }] },
      ],
      clusters: [cluster('app', appPort, false), cluster('sluice', grpcPort, true)],
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
