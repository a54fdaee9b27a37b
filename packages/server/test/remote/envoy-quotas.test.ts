// Quotas with a real Envoy: the filter of docs/guides/envoy-quotas.md as printed, in front of a server. One Envoy for
// all tests; each has a tenant of its own. `npm run soak -- quotas` adds minutes of load, and
// more Envoys.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { inSlices, wallClock } from 'sluice'
import { type FakeClock, fakeClock, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { parse } from 'yaml'
import { blocksOf } from '../../../../scripts/snippets.ts'
import { freePort } from '../../../sluice/src/testing/free-port.ts'
import { ClientConnections } from '../../src/access/client-connections.ts'
import { createLeanServer } from '../../src/grpc/http2/server.ts'
import type { StreamOutput } from '../../src/grpc/method.ts'
import { readReport, type Strategy, writeActions } from '../../src/grpc/rlqs/messages.ts'
import { startServer } from '../../src/service/server.ts'
import type { GrpcStack } from '../../src/settings/grpc-settings.ts'
import { type EnvoyProcess, envoyMissing, startEnvoy } from '../grpc/envoy-process.ts'
import { start } from '../process.ts'
import { captureLog, clientOf, defaults } from '../service.ts'
import { Envoy, REPORT_MS } from './envoy-model.ts'

const QUOTAS_PATH = '/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas'

const rulesOf = (limit: number) => `
- rule_id: tenants
  when: { tenant: { not: [refill, quiet] } }
  limit: ${limit}
  window: 1d
  scope: per_tenant
  algorithm: fixed_window
  consistency: strict
- { rule_id: quiet, when: { tenant: quiet }, limit: 6000, window: 1m, scope: per_tenant }
- { rule_id: refill, when: { tenant: refill }, limit: 10, window: 5s, scope: per_tenant, consistency: strict }
`
/** Requests that Envoy passes until it has received its first assignment. */
const BEFORE_ASSIGNMENT = 20
/** Load of the tenant `quiet`, far below its limit: longer than two reports. */
const QUIET = { perSecond: 17, seconds: 12 }
const POLL = { timeout: 60_000, interval: 100 }

const missing = envoyMissing()
if (missing !== undefined) process.stderr.write(`sluice: tests of quotas with Envoy are skipped: ${missing}\n`)

describe.skipIf(missing !== undefined)('Envoy with quotas', () => {
  const ports = { http: 0, scripted: 0, admin: 0, grpc: 0, scriptedGrpc: 0 }
  let rules = ''
  /** The service in this process; undefined while another one has its port. */
  let service: Awaited<ReturnType<typeof startServer>> | undefined
  let address = ''
  let envoy: EnvoyProcess
  let quiet: Promise<Load>

  const startService = async (grpcStack: GrpcStack) => {
    const settings = { ...defaults(), rules, port: 0, grpcPort: ports.grpc, grpcStack }
    service = await startServer(settings, captureLog().log, 100)
    address = service.address
  }

  beforeAll(async () => {
    for (const name of Object.keys(ports) as (keyof typeof ports)[]) ports[name] = await freePort()
    rules = join(mkdtempSync(join(tmpdir(), 'sluice-quotas-')), 'rules.yaml')
    writeFileSync(rules, rulesOf(60))
    await startService('lean')
    envoy = await startEnvoy(bootstrap(ports), ports.admin)
    quiet = load([ports.http], 'quiet', QUIET.perSecond, QUIET.seconds)
  }, 60_000)

  afterAll(async () => {
    await envoy?.stop()
    await service?.close()
    rmSync(dirname(rules), { recursive: true, force: true })
  })

  const get = (tenant: string) => statusOf(ports.http, tenant)

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

  test('a new tenant far below the limit is never refused', async () => {
    const { seconds, refused } = await quiet
    expect([sum(seconds) >= QUIET.perSecond * QUIET.seconds * 0.9, sum(refused)]).toEqual([true, 0])
  })

  test('the model of Envoy passes, denies and reports as the real one', async () => {
    const scripted = await scriptedService(ports.scriptedGrpc)
    const clock = fakeClock()
    const model = new ScriptedEnvoy(clock)
    const real = { passed: 0, denied: 0 }
    const send = async () => {
      const status = await statusOf(ports.scripted, 'scripted')
      real[status === 200 ? 'passed' : 'denied'] += 1
      await model.envoy.request()
    }
    await send()
    await vi.waitFor(() => expect(scripted.reported('scripted')).toEqual({ allowed: 1, denied: 0 }), POLL)
    for (const [strategies, requests] of SCRIPT) {
      await scripted.assign('scripted', strategies, () => statusOf(ports.scripted, 'probe'))
      await model.assign(strategies)
      for (let count = 0; count < requests; count += 1) await send()
      const { passed, denied } = model.envoy
      expect(real, JSON.stringify(strategies)).toEqual({ passed, denied })
    }
    const all = { allowed: real.passed, denied: real.denied }
    await vi.waitFor(() => expect(scripted.reported('scripted')).toEqual(all), POLL)
    clock.advanceMs(REPORT_MS)
    await model.envoy.step()
    expect(model.reported()).toEqual(all)
    await scripted.close()
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
    const limit = async () => (await clientOf(address).check({ tenant: 'edited', dry_run: true })).limit
    await vi.waitFor(async () => expect(await limit()).toBe(60), POLL)
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

const SOAK_SECONDS = Number(process.env.SLUICE_QUOTA_SECONDS ?? 0)
const SOAK_LIMIT = 1200
const SOAK_RULES = [
  { rule_id: 'large', when: { tenant: 'large limit*' }, limit: 6000, window: '1m', scope: 'per_tenant' },
  ...(['token_bucket', 'fixed_window'] as const).map((algorithm) => {
    const when = { tenant: `${algorithm}*` }
    return { rule_id: algorithm, when, limit: SOAK_LIMIT, window: '1m', scope: 'per_tenant', algorithm }
  }),
]
/** Tenants: Envoys, requests per second, and whether those are above the limit. */
const SOAK_LOADS: readonly (readonly [tenant: string, envoys: number, perSecond: number, isAbove: boolean])[] = [
  ['large limit, 1: 17/s of 100/s', 1, 17, false],
  ['large limit, 1: 30/s of 100/s', 1, 30, false],
  ...['token_bucket', 'fixed_window'].flatMap((algorithm) =>
    [1, 3].flatMap((envoys) => [
      [`${algorithm}, ${envoys}: 16/s of 20/s`, envoys, 16, false] as const,
      [`${algorithm}, ${envoys}: 40/s of 20/s`, envoys, 40, true] as const,
    ]),
  ),
]

test.runIf(missing === undefined && SOAK_SECONDS > 0)(
  'soak: demand below the limit is not refused, above it all of the limit is admitted and no more',
  async () => {
    const redis = await startRedis()
    const rules = join(mkdtempSync(join(tmpdir(), 'sluice-quotas-')), 'rules.yaml')
    writeFileSync(rules, JSON.stringify(SOAK_RULES))
    const nodes: Awaited<ReturnType<typeof startServer>>[] = []
    const envoys: EnvoyProcess[] = []
    const ports: number[] = []
    const settings = { ...defaults(), rules, redis: redis.url, nodes: 2, port: 0 }
    const grpcPorts = [await freePort(), await freePort()]
    for (const grpcPort of grpcPorts) nodes.push(await startServer({ ...settings, grpcPort }, captureLog().log, 100))
    for (let count = 0; count < 3; count += 1) {
      const own = { http: await freePort(), admin: await freePort(), grpc: grpcPorts[count % 2] ?? 0 }
      envoys.push(await startEnvoy(bootstrap(own), own.admin))
      ports.push(own.http)
    }
    const minute = () => Math.floor(wallClock.nowUs() / 60_000_000)
    const before = minute()
    await vi.waitFor(() => expect(minute(), 'windows are aligned to minutes').toBeGreaterThan(before), {
      timeout: 61_000,
      interval: 10,
    })
    const loads = SOAK_LOADS.map(([tenant, count, perSecond]) =>
      load(ports.slice(0, count), tenant, perSecond, SOAK_SECONDS),
    )
    const failures: string[] = []
    for (const [index, [tenant, , perSecond, isAbove]] of SOAK_LOADS.entries()) {
      const { seconds, refused } = (await loads[index]) as Load
      const admitted = seconds.map((count, second) => count - (refused[second] ?? 0))
      const tens = <Value>(of: (from: number, to: number) => Value) =>
        Array.from({ length: Math.floor(SOAK_SECONDS / 10) }, (_, ten) => of(10 * ten, 10 * ten + 10))
      const row = (numbers: readonly number[]) =>
        tens((from, to) => String(sum(numbers.slice(from, to))).padStart(5)).join('')
      process.stdout.write(`${tenant}\n  admitted per 10 s ${row(admitted)}\n  refused per 10 s  ${row(refused)}\n`)
      const late = sum(refused.slice(15)) / (perSecond * (SOAK_SECONDS - 15))
      if (!isAbove && (sum(refused.slice(0, 15)) > 0 || late > 0.01)) failures.push(`${tenant}: refused`)
      if (!isAbove) continue
      const most = mostAdmitted(tenant.startsWith('token_bucket'), admitted)
      if (most > SOAK_LIMIT + ABOVE_MAX) failures.push(`${tenant}: ${most} of ${SOAK_LIMIT} at once`)
      for (let from = 0; from + 60 <= SOAK_SECONDS; from += 60) {
        const inMinute = sum(admitted.slice(from, from + 60))
        if (inMinute < 0.95 * SOAK_LIMIT) failures.push(`${tenant}: ${inMinute} from second ${from}`)
      }
    }
    for (const envoy of envoys) await envoy.stop()
    for (const node of nodes) await node.close()
    await redis.stop()
    rmSync(dirname(rules), { recursive: true, force: true })
    expect(failures).toEqual([])
  },
  (SOAK_SECONDS + 180) * 1000,
)

/** Requests and assignments that were on their way, on a busy machine. */
const ABOVE_MAX = 0.03 * SOAK_LIMIT

/** Most units that a bucket has had to admit: at any time of a token bucket, or in a minute. */
function mostAdmitted(isTokenBucket: boolean, admitted: readonly number[]): number {
  let owed = 0
  let most = 0
  for (const [second, count] of admitted.entries()) {
    if (isTokenBucket) owed = Math.max(0, owed - SOAK_LIMIT / 60)
    else if (second % 60 === 0) owed = 0
    owed += count
    most = Math.max(most, owed)
  }
  return most
}

/** Assignments, and requests after each: more than the tokens, or fewer, so that some are left. */
const SCRIPT: readonly (readonly [Strategy[], number])[] = [
  [[{ tokens: 10 }], 15],
  [[{ tokens: 20 }], 3], // keeps the share of tokens of the one before: none
  [[{ blanket: 'deny' }, { tokens: 20 }], 8],
  [[{ tokens: 20 }], 2],
  [[{ tokens: 41 }], 25], // 10 of 20 were left: 20
  [[{ blanket: 'deny' }, { tokens: 41 }], 1],
  [[{ blanket: 'deny' }, { tokens: 7 }], 10],
  [[{ blanket: 'allow' }], 10],
  [[{ tokens: 5 }], 8],
  [[{ blanket: 'deny' }], 3],
]

/** A quota service that assigns what a test says. */
async function scriptedService(port: number) {
  const totals = new Map<string, { allowed: number; denied: number }>()
  let output: StreamOutput | undefined
  const message = async (bytes: Uint8Array) => {
    for (const { bucketId, allowed, denied } of (await inSlices(readReport(Buffer.from(bytes)))).usages) {
      const total = totals.get(bucketId.tenant ?? '') ?? { allowed: 0, denied: 0 }
      totals.set(bucketId.tenant ?? '', { allowed: total.allowed + allowed, denied: total.denied + denied })
    }
  }
  const open = (_: unknown, opened: StreamOutput) => {
    output = opened
    return { message, end: () => opened.end(), cancel: () => {} }
  }
  const server = createLeanServer({
    methods: [{ kind: 'stream', path: QUOTAS_PATH, open }],
    limits: { messageBytesMax: 1_000_000, streamsMax: 10, callsMax: 10, connectionsMax: 10 },
    clients: new ClientConnections('grpc', defaults(), captureLog().log),
    onRefused: () => {},
    onError: (error) => process.stderr.write(`${error}\n`),
  })
  await server.listen({ host: '127.0.0.1', port })
  let probed: Strategy = { blanket: 'allow' }
  return {
    reported: (tenant: string) => totals.get(tenant),
    /** Returns when Envoy has applied it: a second bucket, assigned in the same message, has changed. */
    assign: async (tenant: string, strategies: readonly Strategy[], probe: () => Promise<number>) => {
      if (!totals.has('probe')) {
        await probe()
        await vi.waitFor(() => expect(totals.has('probe')).toBe(true), POLL)
      }
      probed = 'blanket' in probed && probed.blanket === 'allow' ? { blanket: 'deny' } : { blanket: 'allow' }
      const of = (name: string, strategy: Strategy) => ({ bucketId: { tenant: name }, strategy, ttlSeconds: 60 })
      output?.write(writeActions([...strategies.map((strategy) => of(tenant, strategy)), of('probe', probed)]))
      const expected = probed.blanket === 'allow' ? 200 : 429
      await vi.waitFor(async () => expect(await probe()).toBe(expected), { ...POLL, interval: 5 })
    },
    close: () => server.close(0),
  }
}

/** The model of Envoy, with the same assignments. */
class ScriptedEnvoy {
  readonly envoy: Envoy
  readonly #total = { allowed: 0, denied: 0 }
  #output: StreamOutput | undefined

  constructor(clock: FakeClock) {
    const message = async (bytes: Uint8Array) => {
      for (const { allowed, denied } of (await inSlices(readReport(Buffer.from(bytes)))).usages) {
        this.#total.allowed += allowed
        this.#total.denied += denied
      }
    }
    const open = (_: unknown, output: StreamOutput) => {
      this.#output = output
      return { message, end: () => {}, cancel: () => {} }
    }
    this.envoy = new Envoy({ method: { kind: 'stream', path: QUOTAS_PATH, open } }, clock, REPORT_MS)
  }

  reported(): object {
    return this.#total
  }

  async assign(strategies: readonly Strategy[]): Promise<void> {
    const actions = strategies.map((strategy) => ({ bucketId: { tenant: 'scripted' }, strategy, ttlSeconds: 60 }))
    this.#output?.write(writeActions(actions))
    await this.envoy.step()
  }
}

async function statusOf(port: number, tenant: string): Promise<number> {
  const answer = await fetch(`http://127.0.0.1:${port}/`, { headers: { 'x-tenant': tenant } })
  await answer.arrayBuffer()
  return answer.status
}

/** Requests sent and refused, by second. */
type Load = { readonly seconds: number[]; readonly refused: number[] }

/** Sends requests through each Envoy in turn, at regular times. */
async function load(envoys: readonly number[], tenant: string, perSecond: number, forSeconds: number): Promise<Load> {
  const [seconds, refused] = [1, 2].map(() => Array<number>(forSeconds).fill(0)) as [number[], number[]]
  const failed: string[] = []
  const startMs = performance.now()
  const answers: Promise<void>[] = []
  const sendDue = () => {
    const elapsed = Math.min(forSeconds, (performance.now() - startMs) / 1000)
    while (answers.length < Math.floor(elapsed * perSecond)) {
      const second = Math.min(forSeconds - 1, Math.floor(answers.length / perSecond))
      const port = envoys[answers.length % envoys.length] ?? 0
      seconds[second] = (seconds[second] ?? 0) + 1
      answers.push(
        statusOf(port, tenant).then((status) => {
          if (status === 429) refused[second] = (refused[second] ?? 0) + 1
          else if (status !== 200) failed.push(`${tenant}, second ${second}: status ${status}`)
        }),
      )
    }
    return elapsed < forSeconds
  }
  await vi.waitFor(() => expect(sendDue()).toBe(false), { timeout: (forSeconds + 10) * 1000, interval: 20 })
  await Promise.all(answers)
  expect(failed).toEqual([])
  return { seconds, refused }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}

/** The filter of the guide. */
function quotas(quotaCluster: string): object {
  const [block] = blocksOf('docs/guides/envoy-quotas.md').filter(({ language }) => language === 'yaml')
  const text = block?.text.replace('cluster_name: sluice', `cluster_name: ${quotaCluster}`)
  const [filter] = parse(text ?? '[]') as object[]
  if (filter === undefined) throw new Error('the guide has no filter')
  return filter
}

type Ports = { http: number; admin: number; grpc: number; scripted?: number; scriptedGrpc?: number }

/** With a scripted port: a second listener, whose quotas come from another service. */
function bootstrap({ http, admin, grpc, scripted, scriptedGrpc }: Ports): object {
  const isScripted = scripted !== undefined && scriptedGrpc !== undefined
  return {
    admin: { address: address(admin) },
    static_resources: {
      listeners: [listener(http, 'sluice'), ...(isScripted ? [listener(scripted, 'scripted')] : [])],
      clusters: [cluster('sluice', grpc), ...(isScripted ? [cluster('scripted', scriptedGrpc)] : [])],
    },
  }
}

function listener(port: number, quotaCluster: string): object {
  const router = { '@type': 'type.googleapis.com/envoy.extensions.filters.http.router.v3.Router' }
  const manager = {
    '@type': 'type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager',
    stat_prefix: quotaCluster,
    route_config: { virtual_hosts: [{ name: 'all', domains: ['*'], routes: [route()] }] },
    http_filters: [quotas(quotaCluster), { name: 'router', typed_config: router }],
  }
  return { address: address(port), filter_chains: [{ filters: [{ name: 'http', typed_config: manager }] }] }
}

function route(): object {
  return { match: { prefix: '/' }, direct_response: { status: 200 } }
}

function address(port: number): object {
  return { socket_address: { address: '127.0.0.1', port_value: port } }
}

function cluster(name: string, port: number): object {
  const http2 = {
    'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
      '@type': 'type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
      explicit_http_config: { http2_protocol_options: {} },
    },
  }
  return {
    name,
    type: 'STATIC',
    typed_extension_protocol_options: http2,
    load_assignment: {
      cluster_name: name,
      endpoints: [{ lb_endpoints: [{ endpoint: { address: address(port) } }] }],
    },
  }
}
