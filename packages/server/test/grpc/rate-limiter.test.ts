import { join } from 'node:path'
import { wallClock } from 'sluice'
import { describe, expect, test, vi } from 'vitest'
import { keyHash } from '../../src/log.ts'
import { temporaryFolder } from '../databases.ts'
import { ADMIN_TOKEN, CHECK as HTTP_CHECK } from '../service.ts'
import type { GrpcClient } from './client.ts'
import {
  CheckManyRequest,
  CheckManyResponse,
  CheckRequest,
  CheckResponse,
  CheckStreamRequest,
  CheckStreamResponse,
  ExplainRequest,
  ExplainResponse,
  RATE_LIMITER,
  RefundRequest,
  RefundResponse,
} from './messages.ts'
import { STACK_NAMES, serveGrpc } from './stacks.ts'

const RULES = `
- { rule_id: users, name: Per user, limit: 3, window: 1d, algorithm: fixed_window, scope: per_user }
- { rule_id: mobile, limit: 1, window: 1d, scope: per_ip, when: { country: NL, beta: true } }
- { rule_id: jobs, algorithm: concurrency, limit: 1, window: 60s, scope: per_tenant, endpoint_pattern: /jobs }
`
const [OK, INVALID, NOT_FOUND, EXHAUSTED, PRECONDITION, UNAUTHENTICATED] = [0, 3, 5, 8, 9, 16]
const ADMIN = { authorization: `Bearer ${ADMIN_TOKEN}` }

type Answer = Record<string, unknown>

async function check(client: GrpcClient, request: Record<string, unknown>, headers?: Record<string, string>) {
  const { status, detail, messages } = await client.call(`${RATE_LIMITER}/Check`, CheckRequest.encode(request), headers)
  return { status, detail, answer: messages[0] === undefined ? undefined : CheckResponse.decode(messages[0]) }
}

/** Without the fields that differ between two calls: another second may have begun. */
function withoutTimes({ request_id: _, ...answer }: Answer): Answer {
  return Object.fromEntries(Object.entries(answer).filter(([name]) => !/_(at|after|after_ms)$/.test(name)))
}

function typesOf(answer: Answer): Answer {
  return Object.fromEntries(Object.entries(answer).map(([name, value]) => [name, typeof value]))
}

const VALUE_FIX = 'give a number, true, false or a string'
const MISTAKES: readonly [Record<string, unknown>, string][] = [
  [{ method: 'GTE' }, 'method: unknown method; did you mean "GET"? (got "GTE")'],
  [{ ip_address: 'here' }, 'ip_address: give an IPv4 or IPv6 address, such as 203.0.113.42 (got "here")'],
  [{ client_id: 'a{b}' }, 'client_id: give 1 to 1024 characters without control characters, "{" and "}" (got "a{b}")'],
  [{ cost: 0 }, 'cost: give a whole number from 1 to 1000000000 (got 0)'],
  [{ cost: -5 }, 'cost: give a whole number from 1 to 1000000000 (got -5)'],
  [{ attributes: { x: { number: Number.NaN } } }, `attributes.x: ${VALUE_FIX}`],
  [{ attributes: { x: {} } }, `attributes.x: ${VALUE_FIX}`],
  [{ attributes: JSON.parse('{ "__proto__": { "text": "x" } }') }, 'attributes.__proto__: use a name'],
]

describe.each(STACK_NAMES)('RateLimiter on the %s stack', (stack) => {
  test('Check has the fields and the numbers of the HTTP answer', async () => {
    const { client, address } = await serveGrpc(stack, RULES)
    const http = async (body: unknown) => {
      const headers = { 'content-type': 'application/json' }
      return (
        await fetch(address + HTTP_CHECK, { method: 'POST', headers, body: JSON.stringify(body) })
      ).json() as Promise<Answer>
    }
    for (const client_id of ['a', 'a', 'a', 'a']) {
      const { answer } = await check(client, { client_id })
      const [ours, theirs] = [{ allowed: false, ...answer }, await http({ client_id: 'b' })]
      expect(withoutTimes(ours)).toEqual(withoutTimes(theirs))
      expect(typesOf(ours)).toEqual(typesOf(theirs))
    }
    const unmatched = await check(client, { endpoint: '/x' })
    expect(unmatched.answer, 'no rule matched').toEqual({ allowed: true })
  })

  test('facts, attributes, dry_run, cost and detail have the meaning of the HTTP API', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const user = { client_id: 'alice', endpoint: '/x', method: 'GET' }
    expect((await check(client, { ...user, cost: 2, dry_run: true })).answer).toMatchObject({ remaining: 3 })
    expect((await check(client, { ...user, cost: 2 })).answer).toMatchObject({ allowed: true, remaining: 1 })
    const attributes = { country: { text: 'NL' }, beta: { flag: true }, age: { number: 1.5 } }
    const from = { ip_address: '203.0.113.9', attributes }
    expect((await check(client, from)).answer).toMatchObject({ allowed: true, limit: 1 })
    const { answer } = await check(client, { ...from, detail: true })
    expect(answer).toMatchObject({ rule_id: 'mobile', violated_tier: 'per_ip', violated_limit: 'default' })
    expect(answer?.detail).toMatchObject({
      source: 'store',
      rules: [{ rule_id: 'mobile', limit: 1, window_ms: 86_400_000, mode: 'enforce' }],
      headers: { 'Retry-After': expect.stringMatching(/^\d+$/) },
    })
  })

  test('reset_at of a refusal is when the same request passes, and full_at when the limit is full', async () => {
    const { client } = await serveGrpc(stack, '- { rule_id: three, limit: 3, window: 1h }')
    const seconds = wallClock.nowUs() / 1e6
    const after = (at: unknown) => Math.round((Number(at) - seconds) / 600) * 600
    const allowed = (await check(client, { cost: 3, detail: true })).answer
    expect(after(allowed?.reset_at)).toBe(3600)
    expect(allowed?.detail).toMatchObject({ full_at: allowed?.reset_at })
    const refused = (await check(client, { detail: true })).answer
    expect(after(refused?.reset_at)).toBe(1200)
    const rules = [{ reset_after_ms: refused?.retry_after_ms, full_after_ms: expect.any(Number) }]
    expect(refused?.detail).toMatchObject({ full_at: expect.any(Number), rules })
    expect(after((refused?.detail as { full_at?: number } | undefined)?.full_at)).toBe(3600)
    const never = (await check(client, { cost: 4 })).answer
    expect([never?.reset_at, never?.retry_after]).toEqual([undefined, undefined])
  })

  test('invalid facts are INVALID_ARGUMENT with field, value and fix', async () => {
    const { client } = await serveGrpc(stack, RULES)
    for (const [request, text] of MISTAKES)
      expect(await check(client, request)).toMatchObject({ status: INVALID, detail: expect.stringContaining(text) })
  })

  test('a malformed message is INVALID_ARGUMENT, and unknown fields are ignored', async () => {
    const { client } = await serveGrpc(stack, RULES)
    for (const bytes of [[0x0a, 0xff], [0x0f], [0x0a, 0x02, 0xc3, 0x28], [0x50, 0x01]])
      expect(await client.call(`${RATE_LIMITER}/Check`, Buffer.from(bytes))).toMatchObject({
        status: INVALID,
        detail: expect.stringContaining('malformed message'),
      })
    const unknown = Buffer.from([0xa0, 0x06, 0x01, 0x0a, 0x01, 0x61]) // field 100, then client_id
    expect((await client.call(`${RATE_LIMITER}/Check`, unknown)).status).toBe(OK)
  })

  test('CheckMany answers in order; an invalid check gets an error at its index', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const checks = [{ client_id: 'a' }, { method: 'GTE' }, { client_id: 'a' }, { client_id: 'b' }]
    const { messages } = await client.call(`${RATE_LIMITER}/CheckMany`, CheckManyRequest.encode({ checks }))
    expect(CheckManyResponse.decode(messages[0] as Buffer).results).toMatchObject([
      { response: { allowed: true, remaining: 2 } },
      { error: { code: 'REQUEST_INVALID', grpc_status: INVALID, message: expect.stringContaining('GTE') } },
      { response: { remaining: 1 } },
      { response: { remaining: 2 } },
    ])
    const many = CheckManyRequest.encode({ checks: Array.from({ length: 1001 }, () => ({})) })
    const refused = await client.call(`${RATE_LIMITER}/CheckMany`, many)
    expect(refused).toMatchObject({ status: INVALID, detail: expect.stringContaining('at most 1000 checks') })
  })

  test('CheckStream answers thousands of checks on one stream, each with its id', async () => {
    const { client, metrics } = await serveGrpc(stack, '- { rule_id: all, limit: 100, window: 1d, scope: per_user }')
    const stream = client.open(`${RATE_LIMITER}/CheckStream`)
    const total = 5000
    for (let id = 1; id <= total; id += 1)
      stream.send(CheckStreamRequest.encode({ id, check: id === 7 ? { method: 'GTE' } : { client_id: `u${id % 10}` } }))
    stream.end()
    const { status, messages } = await stream.done
    const answers = messages.map((message) => CheckStreamResponse.decode(message))
    expect([status, answers.length]).toEqual([OK, total])
    expect(new Set(answers.map(({ id }) => id)).size).toBe(total)
    expect(answers.find(({ id }) => id === 7)).toMatchObject({ error: { code: 'REQUEST_INVALID' } })
    expect(answers.filter(({ response }) => (response as { allowed?: boolean })?.allowed).length).toBe(10 * 100)
    expect(await metrics.scrape()).toContain(`sluice_grpc_stream_messages_total{direction="received"} ${total}\n`)
  })

  test('CheckStream keeps ids of 64 bits', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const stream = client.open(`${RATE_LIMITER}/CheckStream`)
    // id 2^64 - 1, and an empty check
    const message = Buffer.from([0x08, ...Array.from({ length: 9 }, () => 0xff), 0x01, 0x12, 0x00])
    stream.send(message)
    await stream.count(1)
    expect(stream.messages[0]?.subarray(0, 11)).toEqual(message.subarray(0, 11))
    stream.end()
    expect((await stream.done).status).toBe(OK)
  })

  test('Refund returns the units once', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const { answer } = await check(client, { client_id: 'a', cost: 3, request_id: 'r1' })
    expect(answer).toMatchObject({ allowed: true, remaining: 0, request_id: 'r1' })
    const refund = (request: Record<string, unknown>) =>
      client.call(`${RATE_LIMITER}/Refund`, RefundRequest.encode(request))
    const { messages } = await refund({ request_id: 'r1', units: 2 })
    expect(RefundResponse.decode(messages[0] as Buffer)).toEqual({ refunded: true })
    expect((await check(client, { client_id: 'a' })).answer).toMatchObject({ allowed: true, remaining: 1 })
    expect(await refund({ request_id: 'r1' })).toMatchObject({ status: PRECONDITION })
    expect(await refund({ request_id: 'other' })).toMatchObject({ status: NOT_FOUND })
    expect(await refund({})).toMatchObject({ status: INVALID, detail: expect.stringContaining('request_id') })
    expect(await refund({ request_id: 'r1', units: -1 })).toMatchObject({ status: INVALID })
  })

  test('Explain needs the role viewer, predicts the decision and consumes nothing', async () => {
    const { client } = await serveGrpc(stack, RULES)
    const explain = (headers?: Record<string, string>) =>
      client.call(`${RATE_LIMITER}/Explain`, ExplainRequest.encode({ client_id: 'a', endpoint: '/x' }), headers)
    expect(await explain()).toMatchObject({ status: UNAUTHENTICATED, detail: expect.stringContaining('role viewer') })
    for (let times = 0; times < 2; times += 1) {
      const { messages } = await explain(ADMIN)
      expect(ExplainResponse.decode(messages[0] as Buffer)).toMatchObject({
        answer: { allowed: true, remaining: 3 },
        rules: [
          { rule_id: 'users', applies: true, limits: [{ limit: 3 }] },
          { rule_id: 'mobile', reason: 'when', fact: 'country' },
          { rule_id: 'jobs' },
        ],
      })
    }
  })

  test('Explain of a stored hash describes the bucket of its key, or is NOT_FOUND', async () => {
    const keySecret = 'a key secret of tests'
    const dataDir = temporaryFolder()
    const eventsSinks = [{ kind: 'jsonl', target: join(dataDir, 'events.jsonl') }] as const
    const { client } = await serveGrpc(stack, RULES, { dataDir, keySecret, eventsSinks, eventsKeys: { jsonl: 'hmac' } })
    const explain = async (user: string) => {
      const request = ExplainRequest.encode({ client_id: `hmac:${keyHash(keySecret)('user', user)}`, endpoint: '/x' })
      const { status, messages } = await client.call(`${RATE_LIMITER}/Explain`, request, ADMIN)
      return { status, explained: messages[0] && ExplainResponse.decode(messages[0]) }
    }
    for (let sent = 0; sent < 2; sent += 1) await check(client, { client_id: 'alice', endpoint: '/x' })
    await vi.waitFor(async () => {
      expect((await explain('alice')).explained).toMatchObject({ answer: { allowed: true, remaining: 1 } })
    }, 20_000)
    expect(JSON.stringify(await explain('alice'))).not.toContain('alice')
    expect((await explain('never sent')).status).toBe(NOT_FOUND)
  })

  test('a message above the limit is RESOURCE_EXHAUSTED', async () => {
    const { client } = await serveGrpc(stack, RULES, { grpcMaxMessageBytes: 1024 })
    const large = { bypass_token: 'x'.repeat(1000), client_id: 'y'.repeat(500) }
    expect(await check(client, large)).toMatchObject({ status: EXHAUSTED, detail: expect.stringContaining('1024') })
    expect((await check(client, { client_id: 'a' })).status).toBe(OK)
  })

  test('an unknown method is UNIMPLEMENTED, and no internal error is logged', async () => {
    const { client, logged } = await serveGrpc(stack, RULES)
    expect(await client.call('/sluice.v1.RateLimiter/Nope', Buffer.alloc(0))).toMatchObject({ status: 12 })
    expect(logged.filter(({ event }) => event === 'grpc_internal_error')).toEqual([])
  })
})
