// Rules that a remote node cannot decide itself are decided by the service, and a node that does not decide by the
// newest rules says so. Real services and Redis; a newer service is a proxy that changes the states of a real one.

import { createServer, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { createRemoteLimiter, type RemoteHealth, type RemoteLimiter } from 'sluice/remote'
import { decodeState, encodeState, type NodeState } from 'sluice/remote-wire'
import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { Http2Transport } from '../../../sluice/src/remote/http2-transport.ts'
import { sharedDataDir } from '../databases.ts'
import { type GrpcService, serveGrpc } from '../grpc/stacks.ts'
import { ADMIN_TOKEN, clientOf, RULE_SET } from '../service.ts'

const PATIENT = { storeDeadlineMs: 5000 }
const WAIT = { timeout: 20_000 }
const PLAIN = '- { rule_id: plain, limit: 500, window: 30d, scope: per_user, endpoint_pattern: /plain }'
const HOT = `
- { rule_id: hot, limit: 500, window: 30d, scope: per_user, store: hot, endpoint_pattern: /hot }
- { rule_id: hot-strict, limit: 10, window: 30d, scope: per_user, store: hot, consistency: strict,
    endpoint_pattern: /strict }
- { rule_id: both-default, limit: 5, window: 30d, scope: per_user, consistency: strict, endpoint_pattern: /both }
- { rule_id: both-hot, limit: 3, window: 30d, scope: per_user, store: hot, consistency: strict,
    endpoint_pattern: /both }
`

async function redisUrl(): Promise<string> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return redis.url
}

async function remoteNode(url: string, healths: RemoteHealth[] = []): Promise<RemoteLimiter> {
  const onHealth = (health: RemoteHealth) => void healths.push(health)
  const limiter = await createRemoteLimiter({ url, deadlineMs: 5000, onHealth, onTransition: () => {} })
  onTestFinished(() => limiter.close())
  return limiter
}

/** Puts rules into the database of a service. */
async function putRules({ address }: GrpcService, rules: string): Promise<void> {
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/yaml' }
  const { status, body } = await clientOf(address).send(RULE_SET, { method: 'PUT', headers, body: `rules:\n${rules}` })
  expect(status, JSON.stringify(body)).toBe(200)
}

/** Asserts that the node and the service count the same buckets of the rules in HOT. */
async function decidesHotRules(node: RemoteLimiter, service: GrpcService): Promise<void> {
  const { check } = clientOf(service.address)
  const left = async (endpoint: string) => (await check({ client_id: 'a', endpoint, dry_run: true })).remaining
  const sources = new Set<string>()
  for (let checks = 0; checks < 20; checks += 1) {
    const { allowed, source, ruleId } = await node.check({ user: 'a', path: '/hot' })
    expect({ allowed, ruleId }).toEqual({ allowed: true, ruleId: 'hot' })
    sources.add(source)
  }
  expect(sources, 'a node that reaches the service leases').toContain('lease')
  expect(await left('/hot')).toBeLessThanOrEqual(480)
  expect(await node.check({ user: 'a', path: '/strict' })).toMatchObject({ allowed: true, remaining: 9 })
  expect(await left('/strict')).toBe(9)
  const both = await Promise.all(Array.from({ length: 6 }, () => node.check({ user: 'a', path: '/both' })))
  expect(both.filter(({ allowed }) => allowed)).toHaveLength(3)
  expect(await check({ client_id: 'a', endpoint: '/both', dry_run: true })).toMatchObject({ allowed: false })
  expect(node.health).toMatchObject({ status: 'ready', reasons: [] })
}

test('rules with a named store are decided as at the service, from the start', async () => {
  const settings = { ...PATIENT, redis: await redisUrl(), stores: { hot: await redisUrl() } }
  const service = await serveGrpc('lean', PLAIN + HOT, settings)
  await decidesHotRules(await remoteNode(service.grpcUrl), service)
})

test('rules with a named store are decided as at the service, by nodes that run when they are added', async () => {
  const settings = { ...PATIENT, redis: await redisUrl(), stores: { hot: await redisUrl() } }
  const service = await serveGrpc('lean', '', { ...settings, rules: undefined, dataDir: await sharedDataDir() })
  await putRules(service, PLAIN)
  const node = await remoteNode(service.grpcUrl)
  await putRules(service, PLAIN + HOT)
  await vi.waitFor(() => expect(node.rules).toHaveLength(5), WAIT)
  await decidesHotRules(node, service)
})

test('rules that regions share are decided by the service', async () => {
  const shared = `
- { rule_id: shared, limit: 100, window: 30d, scope: per_user, spread: global, algorithm: fixed_window,
    consistency: strict }
`
  const region = { region: 'eu', regionWeights: { eu: 0.6, us: 0.4 }, homeShare: 0.5, globalRedis: await redisUrl() }
  const service = await serveGrpc('lean', shared, {
    ...{ ...PATIENT, globalDeadlineMs: 5000, redis: await redisUrl() },
    ...region,
  })
  const node = await remoteNode(service.grpcUrl)
  let allowed = 0
  for (let checks = 0; checks < 100; checks += 1) if ((await node.check({ user: 'a' })).allowed) allowed += 1
  expect(allowed, 'its home and the pool').toBe(30 + 50)
  expect(node.health.status).toBe('ready')
})

type Proxy = {
  readonly url: string
  /** Changes the states that follow. */
  change: (state: NodeState) => Uint8Array
  /** Ends all streams of states; with `false`, new ones end at once. */
  restart(accepts: boolean): void
}

function framed(message: Uint8Array): Buffer {
  const frame = Buffer.alloc(5 + message.length)
  frame.writeUInt32BE(message.length, 1)
  frame.set(message, 5)
  return frame
}

/** Splits a stream into the messages of gRPC. */
class FrameReader {
  #rest: Buffer = Buffer.alloc(0)
  readonly #onMessage: (message: Buffer) => void

  constructor(onMessage: (message: Buffer) => void) {
    this.#onMessage = onMessage
  }

  add(chunk: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, chunk])
    while (this.#rest.length >= 5 && this.#rest.length >= 5 + this.#rest.readUInt32BE(1)) {
      const end = 5 + this.#rest.readUInt32BE(1)
      this.#onMessage(this.#rest.subarray(5, end))
      this.#rest = this.#rest.subarray(end)
    }
  }
}

/** A proxy in front of a service: forwards calls, and changes the states of streams. */
async function startProxy(service: GrpcService): Promise<Proxy> {
  const backend = new Http2Transport({ url: service.grpcUrl, token: ADMIN_TOKEN, tls: undefined })
  const streams = new Set<ServerHttp2Stream>()
  let accepts = true
  const server = createServer()
  const made: Proxy = {
    url: '',
    change: encodeState,
    restart(accept) {
      accepts = accept
      for (const stream of streams) stream.close()
    },
  }
  server.on('stream', (stream, headers) => {
    stream.on('error', () => {})
    const path = String(headers[':path'])
    const trailers = (status: string) => stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': status }))
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true })
    if (path.endsWith('/Watch')) {
      trailers('14')
      if (!accepts) return void stream.end()
      streams.add(stream)
      const onMessage = (message: Uint8Array) => void stream.write(framed(made.change(decodeState(message))))
      const subscription = backend.subscribe(path, new Uint8Array(), onMessage, () => {})
      const reports = new FrameReader((message) => subscription.send(message))
      stream.on('data', (chunk: Buffer) => reports.add(chunk))
      stream.on('close', () => {
        streams.delete(stream)
        subscription.close()
      })
      return
    }
    const chunks: Buffer[] = []
    stream.on('data', (chunk: Buffer) => chunks.push(chunk))
    stream.on('end', () => {
      backend.call(path, Buffer.concat(chunks).subarray(5)).then(
        (reply) => {
          trailers('0')
          stream.end(framed(reply))
        },
        () => stream.close(),
      )
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(async () => {
    backend.destroy()
    for (const stream of streams) stream.close()
    server.close()
  })
  return Object.assign(made, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
}

const TWO = `
${PLAIN}
- { rule_id: closed, limit: 20, window: 30d, scope: per_user, endpoint_pattern: /closed, on_fail: closed }
`

/** A state in which the rule `closed` has a field and a value that no version of today knows. */
function fromTheFuture(state: NodeState): Uint8Array {
  const rules = (JSON.parse(state.rules) as { rule_id: string }[]).map((rule) =>
    rule.rule_id === 'closed' ? { ...rule, quota_of: 'the team' } : rule,
  )
  return encodeState({ ...state, rules: JSON.stringify(rules) })
}

async function decidedThere(node: RemoteLimiter, service: GrpcService): Promise<void> {
  const { check } = clientOf(service.address)
  const read = async () => (await check({ client_id: 'b', endpoint: '/closed', dry_run: true })).remaining as number
  const before = await read()
  expect(node.checkSync({ user: 'b', path: '/closed' })).toBeUndefined()
  expect((await node.check({ user: 'b', path: '/closed' })).allowed).toBe(true)
  expect(await read()).toBe(before - 1)
}

test('a rule of a newer service is decided by the service, and by its on_fail in an outage', async () => {
  const service = await serveGrpc('lean', TWO, { ...PATIENT, redis: await redisUrl() })
  const proxy = await startProxy(service)
  proxy.change = fromTheFuture
  const node = await remoteNode(proxy.url)
  expect(node.health).toMatchObject({ status: 'degraded', reasons: [expect.stringContaining('rule closed')] })
  expect(node.health.reasons[0]).toContain('quota_of')
  await decidedThere(node, service)
  await service.close()
  await vi.waitFor(async () => {
    expect(await node.check({ user: 'b', path: '/closed' })).toMatchObject({ allowed: false, source: 'policy' })
  }, WAIT)
  expect((await node.check({ user: 'b', path: '/plain' })).allowed).toBe(true)
})

test('a node that runs when its service is upgraded is degraded until the rules can be used again', async () => {
  const settings = { ...PATIENT, redis: await redisUrl(), rules: undefined, dataDir: await sharedDataDir() }
  const service = await serveGrpc('lean', '', settings)
  await putRules(service, TWO)
  const proxy = await startProxy(service)
  const healths: RemoteHealth[] = []
  const node = await remoteNode(proxy.url, healths)
  for (let checks = 0; checks < 5; checks += 1) await node.check({ user: 'a', path: '/plain' })
  expect(node.health).toMatchObject({ status: 'ready', reasons: [] })

  proxy.change = fromTheFuture
  await putRules(service, TWO.replace('500', '400'))
  await vi.waitFor(() => expect(node.health.status).toBe('degraded'), WAIT)
  const reported = async (count: number) =>
    expect(await service.metrics.scrape()).toMatch(new RegExp(`sluice_remote_nodes_degraded ${count}\n`))
  await vi.waitFor(() => reported(1), WAIT)
  await decidedThere(node, service)
  expect(await node.check({ user: 'a', path: '/plain' })).toMatchObject({ limit: 400 })

  proxy.change = encodeState
  await putRules(service, TWO.replace('500', '300'))
  await vi.waitFor(() => expect(node.health.status).toBe('ready'), WAIT)
  expect(healths.map(({ status }) => status)).toEqual(['degraded', 'ready'])
  await vi.waitFor(() => reported(0), WAIT)
})

test.each([
  [
    'a field that it does not know',
    (state: NodeState) => Buffer.concat([encodeState(state), Buffer.from([0xf8, 7, 1])]),
  ],
  ['no readable state', () => Buffer.from([0xff, 0xff, 0xff])],
  ['rules that are not JSON', (state: NodeState) => encodeState({ ...state, rules: '[{' })],
] as const)('a node that gets %s leaves every decision to the service', async (_name, change) => {
  const settings = { ...PATIENT, redis: await redisUrl(), rules: undefined, dataDir: await sharedDataDir() }
  const service = await serveGrpc('lean', '', settings)
  await putRules(service, TWO)
  const proxy = await startProxy(service)
  const node = await remoteNode(proxy.url)
  proxy.change = change
  const added = '- { rule_id: added, limit: 1, window: 30d, scope: per_user, endpoint_pattern: /plain }\n'
  await putRules(service, `${TWO}${added}`)
  await vi.waitFor(() => expect(node.health.status).toBe('degraded'), WAIT)
  expect(node.health.reasons[0]).toContain('the service decides every request')
  const answers = await Promise.all([1, 2].map(() => node.check({ user: 'c', path: '/plain' })))
  expect(answers.map(({ allowed }) => allowed).toSorted(), 'by the rule that the node does not know').toEqual([
    false,
    true,
  ])
})

test('a node that lost its stream of rules is degraded until it follows them again', async () => {
  const service = await serveGrpc('lean', TWO, { ...PATIENT, redis: await redisUrl() })
  const proxy = await startProxy(service)
  const healths: RemoteHealth[] = []
  const node = await remoteNode(proxy.url, healths)
  proxy.restart(false)
  await vi.waitFor(() => expect(node.health.status).toBe('degraded'), WAIT)
  expect(node.health.reasons).toEqual([expect.stringMatching(/stream of rules ended.*version \d+ stay in force/)])
  expect((await node.check({ user: 'a', path: '/plain' })).allowed).toBe(true)
  proxy.restart(true)
  await vi.waitFor(() => expect(node.health.status).toBe('ready'), WAIT)
  expect(healths.at(-1)?.status).toBe('ready')
})
