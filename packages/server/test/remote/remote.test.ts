// Remote nodes against the complete service: real gRPC, real Redis.

import { createLimiter, type Limiter, wallClock } from 'sluice'
import { createRemoteLimiter } from 'sluice/remote'
import { decodeReplies, encodeRequests, type WireReply, type WireRequest } from 'sluice/remote-wire'
import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { type GrpcService, STACK_NAMES, serveGrpc } from '../grpc/stacks.ts'
import { ADMIN_TOKEN, clientOf } from '../service.ts'

const RULES = `
- { rule_id: bucket, limit: 1000, window: 1h, scope: per_user, algorithm: token_bucket, endpoint_pattern: /bucket }
- { rule_id: daily, limit: 500, window: 1d, scope: per_user, algorithm: fixed_window, endpoint_pattern: /daily }
- { rule_id: strict, limit: 10, window: 1h, scope: [tenant, user], consistency: strict, endpoint_pattern: /strict }
- { rule_id: exports, limit: 1, window: 5m, scope: per_user, algorithm: concurrency, endpoint_pattern: /exports }
- { rule_id: guests, limit: 20, window: 1h, scope: per_user, on_missing: by_ip, endpoint_pattern: /guests }
- { rule_id: sized, limit: 100, window: 1h, scope: per_user, cost: kilobytes, endpoint_pattern: /sized }
`

/** The machine may be busy: these tests check decisions, not latency. */
const PATIENT = { storeDeadlineMs: 5000 }
const DEADLINE_MS = 5000

async function withRedis(): Promise<{ redis: string }> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return { redis: redis.url }
}

async function remoteNode({ grpcUrl }: GrpcService, token?: string): Promise<Limiter> {
  const limiter = await createRemoteLimiter({ url: grpcUrl, deadlineMs: DEADLINE_MS, ...(token ? { token } : {}) })
  onTestFinished(() => limiter.close())
  return limiter
}

/** Texts that are no subject. */
const NO_SUBJECTS = ['null', '[]', '1', '"x"', 'true', '', '{', '{"user":"e"', '\u0000', '[{"user":"e"}]']
/** Facts with a wrong type. */
const WRONG_FACTS: readonly object[] = [
  ...['ip', 'user', 'apiKey', 'tenant', 'plan', 'method', 'path', 'bypassToken'].flatMap((fact) =>
    [5, null, true, [], {}].map((value) => ({ [fact]: value })),
  ),
  ...[0, -1, 1.5, '1', null, 2 ** 53].map((cost) => ({ cost })),
  ...[5, null, [], 'x', { a: null }, { a: {} }, { a: ['x'] }].map((attributes) => ({ attributes })),
  { unknown: 'x' },
]

describe.each(STACK_NAMES)('remote nodes on the %s stack', (stack) => {
  test('two remote nodes and the service together admit no more than the limit, mostly from leases', async () => {
    const service = await serveGrpc(stack, RULES, { ...PATIENT, ...(await withRedis()) })
    const [first, second] = [await remoteNode(service), await remoteNode(service)]
    const { check } = clientOf(service.address)
    const sources: Record<string, number> = {}
    let allowed = 0
    for (let round = 0; round < 400; round += 1) {
      for (const node of [first, second]) {
        const decision = await node.check({ user: 'a', path: '/daily' })
        sources[decision.source] = (sources[decision.source] ?? 0) + 1
        if (decision.allowed) allowed += 1
      }
      if (round % 20 === 0 && (await check({ client_id: 'a', endpoint: '/daily' })).allowed) allowed += 1
    }
    expect(allowed, 'units that the service leases to itself may be left').toBeGreaterThan(450)
    expect(allowed).toBeLessThanOrEqual(500)
    expect(sources.lease, JSON.stringify(sources)).toBeGreaterThan(400)
    const metrics = await service.metrics.scrape()
    expect(metrics).toMatch(/sluice_remote_nodes 2\n/)
    const leased = Number(/sluice_remote_units_total\{direction="leased"\} (\d+)/.exec(metrics)?.[1])
    expect(leased).toBeGreaterThan(300)
    expect(leased).toBeLessThanOrEqual(500)
  })

  test('leases of a token bucket are returned when a node closes', async () => {
    const service = await serveGrpc(stack, RULES, { ...PATIENT, ...(await withRedis()) })
    const node = await createRemoteLimiter({ url: service.grpcUrl, deadlineMs: DEADLINE_MS })
    for (let index = 0; index < 30; index += 1) await node.check({ user: 'b', path: '/bucket' })
    await node.close()
    const { check } = clientOf(service.address)
    const { remaining } = await check({ client_id: 'b', endpoint: '/bucket', dry_run: true })
    expect(remaining).toBe(970)
  })

  test('strict rules, composite keys, missing facts, costs, permits and refunds decide as at the service', async () => {
    const service = await serveGrpc(stack, RULES, { ...PATIENT, ...(await withRedis()) })
    const node = await remoteNode(service)
    const { check } = clientOf(service.address)
    const strict = { tenant: 't', user: 'c', path: '/strict' }
    const taken = await node.check(strict)
    expect(taken).toMatchObject({ allowed: true, remaining: 9, source: 'store' })
    await node.give(taken)
    const body = { client_id: 'c', tenant: 't', endpoint: '/strict', dry_run: true }
    expect(await check(body)).toMatchObject({ remaining: 10 })
    await node.check({ ip: '192.0.2.7', path: '/guests' })
    expect(await check({ ip_address: '192.0.2.7', endpoint: '/guests', dry_run: true })).toMatchObject({
      allowed: true,
    })
    const sized = { path: '/sized', cost: 3, attributes: { kilobytes: 4 } }
    expect((await node.check({ user: 'c', ...sized })).outcomes).toMatchObject([{ cost: 12, remaining: 88 }])
    const { path: endpoint, ...same } = sized
    expect((await check({ client_id: 'd', endpoint, ...same })).remaining).toBe(88)
    const permit = await node.check({ user: 'c', path: '/exports' })
    expect(permit.allowed).toBe(true)
    expect((await node.check({ user: 'c', path: '/exports' })).allowed).toBe(false)
    await node.release(permit)
    expect((await node.check({ user: 'c', path: '/exports' })).allowed).toBe(true)
    expect(await node.peek({ user: 'never seen', path: '/daily' })).toMatchObject({ allowed: true, remaining: 500 })
  })

  test('a state of several megabytes arrives, and so does its next version', async () => {
    const rest = `limit: 1, window: 1d, scope: per_user, description: ${'x'.repeat(4000)}`
    const line = (index: number) => `- { rule_id: r${index}, endpoint_pattern: /${index}, ${rest} }\n`
    const rules = Array.from({ length: 1000 }, (_, index) => line(index)).join('')
    const service = await serveGrpc(stack, rules)
    const node = await remoteNode(service)
    expect(node.rules).toHaveLength(1000)
    expect((await node.check({ user: 'a', path: '/999' })).ruleId).toBe('r999')
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
    const body = JSON.stringify({ rule_id: 'r999', on: true, reason: 'test' })
    const { send } = clientOf(service.address)
    await send('/api/v1/rate-limit/kill-switch', { method: 'POST', headers, body })
    await vi.waitFor(async () => expect((await node.check({ user: 'a', path: '/999' })).ruleId).toBe(null), 10_000)
  })

  test('a rule that the kill switch disables stops applying on the remote node', async () => {
    const service = await serveGrpc(stack, RULES)
    const node = await remoteNode(service)
    expect((await node.check({ user: 'd', path: '/strict', tenant: 't' })).ruleId).toBe('strict')
    const { send } = clientOf(service.address)
    const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
    const body = JSON.stringify({ rule_id: 'strict', on: true, reason: 'test' })
    const answer = await send('/api/v1/rate-limit/kill-switch', { method: 'POST', headers, body })
    if (answer.status !== 200) throw new Error(JSON.stringify(answer.body))
    await vi.waitFor(async () => {
      expect((await node.check({ user: 'd', path: '/strict', tenant: 't' })).ruleId).toBe(null)
    }, 5000)
  })
})

describe.each(STACK_NAMES)('what a remote node may do on the %s stack', (stack) => {
  async function exchange(service: GrpcService, requests: readonly WireRequest[], token: string): Promise<WireReply[]> {
    const headers = { authorization: `Bearer ${token}` }
    const { status, detail, messages } = await service.client.call(
      '/sluice.v1.Leases/Exchange',
      encodeRequests(requests),
      headers,
    )
    if (status !== 0) throw new Error(detail)
    return decodeReplies(messages[0] ?? Buffer.alloc(0))
  }

  const charge = {
    name: { ruleId: 'daily', name: 'default', plan: undefined, byIp: false },
    facts: { user: 'e' },
    fingerprint: '',
    min: 1,
    max: 20,
    kind: 'hold',
  } as const

  test('units go back once, with the lease that names them, and never more than it has', async () => {
    const service = await serveGrpc(stack, RULES, { ...PATIENT, ...(await withRedis()) })
    const take = { type: 'take', charges: [charge], op: '', returns: [] } as const
    const [reply] = await exchange(service, [take], ADMIN_TOKEN)
    if (reply?.type !== 'taken') throw new Error(JSON.stringify(reply))
    const [grant] = reply.taken.grants
    expect(grant).toMatchObject({ units: 20, remaining: 480 })
    expect(grant?.leaseMs).toBeGreaterThan(0)
    const give = (lease: string, units: number) =>
      ({ type: 'give', op: '', returns: [{ lease, units, settled: 0, spentUs: 0, ttlUs: 0 }] }) as const
    const lease = grant?.lease ?? ''
    const [first, again] = await exchange(service, [give(lease, 5), give(lease, 5)], ADMIN_TOKEN)
    expect([first, again]).toMatchObject([
      { type: 'given', results: ['given'] },
      { type: 'given', results: ['repeated'], leases: [''] },
    ])
    const rest = first?.type === 'given' ? (first.leases[0] ?? '') : ''
    expect(await exchange(service, [give(rest, 1000)], ADMIN_TOKEN)).toMatchObject([
      { results: ['given'], leases: [''] },
    ])
    expect(await exchange(service, [give(`${lease}x`, 5)], ADMIN_TOKEN)).toMatchObject([{ results: ['expired'] }])
    const { check } = clientOf(service.address)
    expect(await check({ client_id: 'e', endpoint: '/daily', dry_run: true })).toMatchObject({ remaining: 500 })
  })

  test('a lease of one token is refused with another, and an unknown rule is left to the service', async () => {
    const service = await serveGrpc(stack, RULES)
    const take = { type: 'take', charges: [charge], op: '', returns: [] } as const
    const unknown = { ...charge, name: { ...charge.name, ruleId: 'missing' } }
    const [own, other] = await exchange(service, [take, { ...take, charges: [unknown] }], ADMIN_TOKEN)
    expect(other).toMatchObject({ type: 'taken', taken: { granted: false, asksToDecide: true } })
    const lease = own?.type === 'taken' ? (own.taken.grants[0]?.lease ?? '') : ''
    const message = encodeRequests([
      { type: 'give', op: '', returns: [{ lease, units: 5, settled: 0, spentUs: 0, ttlUs: 0 }] },
    ])
    const { messages } = await service.client.call('/sluice.v1.Leases/Exchange', message) // anonymous
    expect(decodeReplies(messages[0] ?? Buffer.alloc(0))).toMatchObject([{ type: 'error', code: 'OPTION_INVALID' }])
  })

  test('a bad request of a batch fails alone: it charges nothing, and the others are answered', async () => {
    const service = await serveGrpc(stack, RULES)
    const take: WireRequest = { type: 'take', charges: [charge], op: '', returns: [] }
    const decide = (subject: string): WireRequest => ({ type: 'decide', subject, requestId: '', dryRun: false })
    const subject = { tenant: 't', user: 'e', path: '/strict' }
    const returned = { lease: 'x'.repeat(40), units: 1, settled: 0, spentUs: 0, ttlUs: 0 }
    const bad: WireRequest[] = [
      ...NO_SUBJECTS.map(decide),
      ...WRONG_FACTS.map((fact) => decide(JSON.stringify({ ...subject, ...fact }))),
      decide(JSON.stringify({ ...subject, user: 'x'.repeat(100_000) })),
      decide(`{"attributes":{"a":${'['.repeat(25_000)}${']'.repeat(25_000)}}}`),
      { ...take, charges: [{ ...charge, min: 0 }] },
      { ...take, charges: Array.from({ length: 1001 }, () => charge) },
      { type: 'refund', requestId: '['.repeat(25_000), units: 1 },
      { type: 'give', op: '', returns: Array.from({ length: 1001 }, () => returned) },
    ]
    const batch = [take, ...bad, decide(JSON.stringify(subject)), take]
    const [first, ...others] = await exchange(service, batch, ADMIN_TOKEN)
    const [last, decided, ...failed] = others.reverse()
    for (const one of [first, last]) expect(one).toMatchObject({ type: 'taken', taken: { granted: true } })
    expect(decided).toMatchObject({ type: 'decided' })
    failed.reverse()
    expect(failed).toHaveLength(bad.length)
    for (const [index, one] of failed.entries()) {
      expect(one, JSON.stringify(bad[index]).slice(0, 200)).toMatchObject({
        type: 'error',
        code: expect.stringMatching(/^(OPTION|SUBJECT)_INVALID$/),
      })
    }
    const { check } = clientOf(service.address)
    const left = { client_id: 'e', tenant: 't', endpoint: '/strict', dry_run: true }
    expect(await check(left), 'one valid decision').toMatchObject({ remaining: 9 })
    expect(service.logged.filter(({ event }) => event === 'grpc_internal_error')).toEqual([])
  })

  test('the error of a fact with a wrong type names field, value and fix', async () => {
    const service = await serveGrpc(stack, RULES)
    const replies = await exchange(
      service,
      ['{"user":5}', 'null', '{"attributes":{"a":["secret"]}}'].map((subject) => {
        return { type: 'decide', subject, requestId: '', dryRun: false }
      }),
      ADMIN_TOKEN,
    )
    expect(replies.map((reply) => (reply.type === 'error' ? reply.message : reply))).toEqual([
      'subject.user = 5: give a string, or leave it out',
      'subject_json = null: give the facts of the request as a JSON object of at most 65536 characters',
      'subject.attributes.a = a list: give a string, a number, true or false',
    ])
  })

  test('a request without charges is refused by itself: the store is not asked', async () => {
    const service = await serveGrpc(stack, RULES, { ...PATIENT, ...(await withRedis()) })
    const empty: WireRequest[] = [
      { type: 'take', charges: [], op: '', returns: [] },
      { type: 'peek', charges: [] },
    ]
    const replies = await exchange(service, Array.from({ length: 50 }, () => empty).flat(), ADMIN_TOKEN)
    expect(new Set(replies.map((reply) => (reply.type === 'error' ? reply.code : reply.type)))).toEqual(
      new Set(['OPTION_INVALID']),
    )
    expect(await clientOf(service.address).check({ client_id: 'a', endpoint: '/strict', tenant: 't' })).toMatchObject({
      allowed: true,
      remaining: 9,
    })
    expect(await service.metrics.scrape()).toMatch(/sluice_breaker_open\{[^}]*\} 0\n/)
  })

  test('units of a limit that cannot be leased are not held: the service asks to decide', async () => {
    const service = await serveGrpc(stack, RULES)
    const name = { ...charge.name, ruleId: 'strict' }
    const take = {
      type: 'take',
      charges: [{ ...charge, name, facts: { tenant: 't', user: 'e' } }],
      op: '',
      returns: [],
    }
    const [reply] = await exchange(service, [take as WireRequest], ADMIN_TOKEN)
    expect(reply).toMatchObject({ type: 'taken', taken: { granted: false, asksToDecide: true } })
    const body = { client_id: 'e', tenant: 't', endpoint: '/strict', dry_run: true }
    expect(await clientOf(service.address).check(body)).toMatchObject({ remaining: 10 })
  })

  test('malformed messages get INVALID_ARGUMENT, and options that cannot work are rejected', async () => {
    const service = await serveGrpc(stack, RULES)
    const { status } = await service.client.call('/sluice.v1.Leases/Exchange', Buffer.from([0xff, 0xff, 0xff]))
    expect(status).toBe(3)
    await expect(createRemoteLimiter({ url: 'localhost:8081' })).rejects.toMatchObject({ code: 'OPTION_INVALID' })
    await expect(createRemoteLimiter({ url: service.grpcUrl, token: 'wrong' })).rejects.toMatchObject({
      code: 'OPTION_INVALID',
      message: expect.not.stringContaining('wrong'),
    })
  })
})

test('a key with an override, and every key during a global factor, is decided by the service', async () => {
  const rules = createLimiter({ rules: [{ rule_id: 'x', limit: 5, window: '1h', scope: 'per_user' }] })
  onTestFinished(() => rules.close())
  const { StateStreams } = await import('../../src/grpc/leases/state-stream.ts')
  const { NodeRules } = await import('../../../sluice/src/remote/node-rules.ts')
  const { decodeState } = await import('sluice/remote-wire')
  const streams = new StateStreams(rules, 5)
  onTestFinished(() => streams.close())
  const states: InstanceType<typeof NodeRules>[] = []
  const noop = { drained: async () => {}, end: () => {}, fail: () => {} }
  streams.open({ ...noop, write: (message) => states.push(new NodeRules(decodeState(message))) > 0 })
  expect(states[0]?.needsService({ user: 'vip' })).toBe(false)
  rules.changeOverrides({
    set: [
      { id: 'o1', ruleId: null, fact: 'user', owner: 'vip', effect: { limit: 50 }, expiresAtMs: null },
      { id: 'o2', ruleId: null, fact: 'ip', owner: '2001:db8::/64', effect: { ban: 429 }, expiresAtMs: null },
    ] as never,
  })
  await vi.waitFor(() => expect(states).toHaveLength(2))
  expect(states[1]?.needsService({ user: 'vip' })).toBe(true)
  expect(states[1]?.needsService({ user: 'other', ip: '2001:db8::1' })).toBe(true)
  expect(states[1]?.needsService({ user: 'other', ip: '2001:db9::1' })).toBe(false)
  rules.setGlobalFactor({ factor: 0.5, expiresAtMs: wallClock.nowUs() / 1000 + 60_000 } as never)
  await vi.waitFor(() => expect(states).toHaveLength(3))
  expect(states[2]?.needsService({ user: 'other' })).toBe(true)
})

test('a node that reads slowly skips states, and gets the newest one when it has read the last', async () => {
  const rules = createLimiter({ rules: [{ rule_id: 'x', limit: 5, window: '1h', scope: 'per_user' }] })
  onTestFinished(() => rules.close())
  const { StateStreams } = await import('../../src/grpc/leases/state-stream.ts')
  const { decodeState } = await import('sluice/remote-wire')
  const streams = new StateStreams(rules, 5)
  onTestFinished(() => streams.close())
  const [slow, fast]: [string[], string[]] = [[], []]
  let read = () => {}
  const drained = () => new Promise<void>((resolve) => (read = resolve))
  const follow = (seen: string[], isRead: boolean) =>
    streams.open({
      ...{ drained, end: () => {}, fail: () => {} },
      write: (message) => {
        seen.push(String(decodeState(message).disabled))
        return isRead
      },
    })
  follow(slow, false)
  follow(fast, true)
  for (const suspended of [['x'], [], ['x', 'y']]) {
    rules.disable(suspended)
    await vi.waitFor(() => expect(fast.at(-1)).toBe(String(suspended)))
  }
  expect([slow, fast]).toEqual([[''], ['', 'x', '', 'x,y']])
  read()
  await vi.waitFor(() => expect(slow).toEqual(['', 'x,y']))
})

test('the service counts the remote nodes that report to be degraded, and ends malformed reports', async () => {
  const rules = createLimiter({ rules: [{ rule_id: 'x', limit: 5, window: '1h', scope: 'per_user' }] })
  onTestFinished(() => rules.close())
  const { StateStreams } = await import('../../src/grpc/leases/state-stream.ts')
  const { encodeReport } = await import('sluice/remote-wire')
  const streams = new StateStreams(rules)
  onTestFinished(() => streams.close())
  const failed: Error[] = []
  const fail = (error: Error) => void failed.push(error)
  const input = streams.open({ write: () => true, drained: async () => {}, end: () => {}, fail })
  const counted = () => [streams.size, streams.degraded]
  expect(counted()).toEqual([1, 0])
  for (const [degraded, count] of [
    ['it lags', 1],
    ['', 0],
  ] as const) {
    input.message(encodeReport({ version: 3, degraded }))
    expect(counted()).toEqual([1, count])
  }
  input.message(Buffer.from([0xff, 0xff, 0xff]))
  expect([streams.size, failed[0]?.message]).toEqual([0, expect.stringContaining('WatchRequest')])
})
