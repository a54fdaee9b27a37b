// Envoy's rate limit service in the complete node: live reload, POST /json, metrics and events, access.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseRules } from 'sluice'
import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { parse } from 'yaml'
import { RuleDomains } from '../../src/envoy/rule-domains.ts'
import { SHOULD_RATE_LIMIT } from '../../src/grpc/envoy/should-rate-limit.ts'
import { readResponse, requestBytes } from './rate-limit-fixture.ts'
import { STACK_NAMES, serveGrpc } from './stacks.ts'

const RULES = '- { rule_id: per_user, limit: 2, window: 1h, scope: per_user, algorithm: fixed_window }\n'
const [OK, OVER] = [1, 2]
const POLL = { timeout: 20_000, interval: 20 }

function configFolder(files: Record<string, string>): { folder: string; write(name: string, text: string): void } {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-envoy-config-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const write = (name: string, text: string) => writeFileSync(join(folder, name), text)
  for (const [name, text] of Object.entries(files)) write(name, text)
  return { folder, write }
}

function limited(domain: string, requests: number): string {
  return `domain: ${domain}\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: ${requests} } }]\n`
}

test('the example rules refuse no request of Envoy, and the log says which domains have limits', async () => {
  const examples = readFileSync(new URL('../../../../examples/rules.yaml', import.meta.url), 'utf8')
  const { client, logged } = await serveGrpc('lean', examples)
  const flood = requestBytes('edge', [['remote_address=203.0.113.7']], 5000) // address_flood: 1000 a minute
  const { messages } = await client.call(SHOULD_RATE_LIMIT, flood)
  expect(readResponse(messages[0] as Buffer)).toMatchObject({ code: OK, statuses: [{ code: OK, remaining: 0 }] })
  await client.call(SHOULD_RATE_LIMIT, flood)
  expect(logged.find(({ event }) => event === 'envoy_domains')).toMatchObject({
    ...{ configured: [], rules: [], others: 'unlimited' },
  })
  const warned = logged.filter(({ event }) => event === 'envoy_domain_unlimited')
  expect(warned).toMatchObject([{ domain: 'edge', fix: expect.stringContaining('--envoy-domain') }])
  const mapped = await serveGrpc('lean', examples, { envoyDomains: ['edge'] })
  const refused = await mapped.client.call(SHOULD_RATE_LIMIT, flood)
  expect(readResponse(refused.messages[0] as Buffer).code).toBe(OVER)
  expect(mapped.logged.find(({ event }) => event === 'envoy_domains')).toMatchObject({
    ...{ rules: ['edge'], others: 'unlimited' },
  })
})

describe.each(STACK_NAMES)('the rate limit service on the %s stack', (stack) => {
  test('domains of the configuration are counted, rules apply to mapped ones, others are unlimited', async () => {
    const { folder } = configFolder({ 'a.yaml': limited('one', 1), 'b.conf': limited('two', 2), '.c': 'no' })
    const settings = { envoyConfig: folder, envoyDomains: ['x'] }
    const { client, metrics, address, logged } = await serveGrpc(stack, RULES, settings)
    const warned = logged.filter(({ event }) => event === 'envoy_config_warnings')
    const warnings = [`${join(folder, '.c')}: file: not read: its name begins with a dot`]
    expect(warned).toMatchObject([{ path: folder, warnings }])
    const ask = async (domain: string, entry: string) => {
      const { status, messages } = await client.call(SHOULD_RATE_LIMIT, requestBytes(domain, [[entry]]))
      expect(status).toBe(0)
      return readResponse(messages[0] as Buffer).code
    }
    expect([await ask('one', 'k=v'), await ask('one', 'k=v')]).toEqual([OK, OVER])
    expect([await ask('two', 'k=v'), await ask('two', 'k=v'), await ask('two', 'k=v')]).toEqual([OK, OK, OVER])
    expect([await ask('x', 'user=u'), await ask('x', 'user=u'), await ask('x', 'user=u')]).toEqual([OK, OK, OVER])
    expect([await ask('y', 'user=u'), await ask('y', 'user=u'), await ask('y', 'user=u')]).toEqual([OK, OK, OK])
    const text = await metrics.scrape()
    expect(text).toMatch(/sluice_checks_total\{[^}]*rule="envoy:one.k"[^}]*\} 1/)
    expect(text).toMatch(/rule="per_user"/)
    const { status, body } = await post(address, {
      domain: 'one',
      descriptors: [{ entries: [{ key: 'k', value: 'v' }] }],
    })
    expect({ status, body }).toMatchObject({
      status: 429,
      body: { overallCode: 'OVER_LIMIT', statuses: [{ code: 'OVER_LIMIT', currentLimit: { unit: 'DAY' } }] },
    })
  })

  test('a changed configuration applies; an invalid one is logged with its line and changes nothing', async () => {
    const { folder, write } = configFolder({ 'a.yaml': limited('one', 1) })
    const { client, logged } = await serveGrpc(stack, RULES, { envoyConfig: folder })
    const limitNow = async () => {
      const peek = requestBytes('one', [{ entries: ['k=v'], hits: 0 }])
      const { messages } = await client.call(SHOULD_RATE_LIMIT, peek)
      return readResponse(messages[0] as Buffer).statuses[0]?.limit?.requests
    }
    expect(await limitNow()).toBe(1)
    write('a.yaml', limited('one', 7))
    await vi.waitFor(async () => expect(await limitNow()).toBe(7), POLL)
    write('b.yaml', 'domain: two\ndescriptors:\n  - kee: a\n')
    const rejected = () => logged.find(({ event }) => event === 'envoy_config_rejected')
    await vi.waitFor(() => expect(rejected()?.reason).toContain('b.yaml:3: descriptors[0].kee: unknown key'), POLL)
    expect(await limitNow()).toBe(7)
  })

  test('an invalid request is INVALID_ARGUMENT', async () => {
    const { client } = await serveGrpc(stack, RULES)
    expect(await client.call(SHOULD_RATE_LIMIT, requestBytes('', [['a=b']]))).toMatchObject({
      status: 3,
      detail: 'REQUEST_INVALID: domain: give a name (got "")',
    })
    expect(await client.call(SHOULD_RATE_LIMIT, Buffer.from([255, 255]))).toMatchObject({ status: 3 })
  })

  test('needs a token where checks do', async () => {
    const { client } = await serveGrpc(stack, RULES, { checks: 'token' })
    expect(await client.call(SHOULD_RATE_LIMIT, requestBytes('x', [['a=b']]))).toMatchObject({ status: 16 })
  })
})

test.for(STACK_NAMES)(
  'on Redis and the %s stack, nodes and descriptors share counters, refused requests count, an outage is UNAVAILABLE',
  async (stack) => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const { folder } = configFolder({ 'a.yaml': limited('one', 10) })
    const settings = { envoyConfig: folder, redis: redis.url, storeDeadlineMs: 5000 }
    const nodes = [await serveGrpc(stack, RULES, settings), await serveGrpc(stack, RULES, settings)]
    const ask = async (node: number, entry: string, hits = 1) => {
      const request = requestBytes('one', [[entry], { entries: ['k=read'], hits: 0 }], hits)
      const { status, messages } = (await nodes[node]?.client.call(SHOULD_RATE_LIMIT, request)) ?? {}
      return messages?.[0] === undefined ? { grpc: status, code: 0, statuses: [] } : readResponse(messages[0])
    }
    const answers = await Promise.all(Array.from({ length: 30 }, (_, index) => ask(index % 2, 'k=shared')))
    expect(answers.filter(({ code }) => code === OK)).toHaveLength(10)
    expect(answers.map(({ statuses }) => statuses[1]?.remaining)).toEqual(answers.map(() => 10))
    const both = requestBytes('one', [['k=both'], { entries: ['k=both'], limit: [10, 4] }])
    const counted: number[] = []
    for (let request = 0; request < 6; request += 1) {
      const { messages } = (await nodes[0]?.client.call(SHOULD_RATE_LIMIT, both)) ?? {}
      counted.push(readResponse(messages?.[0] as Buffer).code)
    }
    expect(counted, 'descriptors that share a counter both count').toEqual([OK, OK, OK, OK, OK, OVER])
    expect((await ask(0, 'k=large', 11)).code).toBe(OVER)
    expect((await ask(1, 'k=large')).code).toBe(OVER)
    await redis.stop()
    expect(await ask(0, 'k=later')).toMatchObject({ grpc: 14 })
    const check = { domain: 'one', descriptors: [{ entries: [{ key: 'k', value: 'later' }] }] }
    const undecided = expect.stringContaining('The request was not decided; its hits may or may not be counted')
    expect(await post(nodes[0]?.address ?? '', check)).toMatchObject({ status: 503, body: { detail: undecided } })
  },
)

test.each([
  [['*'], '', 'rules'],
  [['edge'], '', 'unlimited'],
  [[], '- { rule_id: r, limit: 1, window: 1h, when: { domain: edge } }', 'unlimited'],
  [[], '- { rule_id: r, limit: 1, window: 1h, when: { domain: "*" } }', 'rules'],
  [[], '- { rule_id: r, limit: 1, window: 1h, when: { domain: { not: edge } } }', 'rules'],
])('with --envoy-domain %j and the rules %j, the log says that all other domains have: %s', (given, text, others) => {
  const rules = parseRules(parse(text) ?? [])
  expect(new RuleDomains({ rules }, given, { event: () => {} }).others()).toBe(others)
})

test('a node does not start with an invalid configuration', async () => {
  const { folder } = configFolder({ 'a.yaml': 'domain: one\ndescriptors: [{ key: k, rate_limit: { unit: no } }]\n' })
  const [stack = 'node'] = STACK_NAMES
  await expect(serveGrpc(stack, RULES, { envoyConfig: join(folder, 'a.yaml') })).rejects.toThrow(
    /a\.yaml:2: descriptors\[0\]\.rate_limit\.unit: use one of second/,
  )
})

test('POST /json takes either case, any media type, and says what is wrong', async () => {
  const { folder } = configFolder({ 'a.yaml': limited('one', 5) })
  const [stack = 'node'] = STACK_NAMES
  const { address } = await serveGrpc(stack, RULES, { envoyConfig: folder, envoyHeaders: 'x-ratelimit' })
  const entries = [{ key: 'k', value: 'v' }]
  const first = await post(address, { domain: 'one', descriptors: [{ entries }], hits_addend: 2 }, 'text/plain')
  expect(first).toMatchObject({
    status: 200,
    body: {
      overallCode: 'OK',
      statuses: [{ code: 'OK', limitRemaining: 3, durationUntilReset: expect.stringMatching(/^\d+s$/) }],
      responseHeadersToAdd: [{ key: 'X-RateLimit-Limit', value: '5' }, {}, {}],
    },
  })
  const peek = { domain: 'one', descriptors: [{ entries, hitsAddend: '0' }] }
  expect((await post(address, peek)).body).toMatchObject({ statuses: [{ limitRemaining: 3 }] })
  const override = { entries, limit: { requestsPerUnit: 1, unit: 'HOUR' } }
  expect((await post(address, { domain: 'one', descriptors: [override] })).status).toBe(200)
  expect((await post(address, { domain: 'one', descriptors: [override] })).status).toBe(429)
  for (const [body, detail] of [
    [{ domain: 'one', descriptors: [], hits: 1 }, 'unknown field'],
    [{ domain: 'one', descriptors: [] }, 'at least one'],
    [{ domain: 'one', descriptors: [{ entries, hitsAddend: -1 }] }, 'whole number'],
    [[], 'send a JSON object'],
  ] as const) {
    const { status, body: problem } = await post(address, body)
    expect(status).toBe(400)
    expect(JSON.stringify(problem)).toContain(detail)
  }
})

async function post(address: string, body: unknown, type = 'application/json') {
  const answer = await fetch(`${address}/json`, {
    method: 'POST',
    headers: { 'content-type': type },
    body: JSON.stringify(body),
  })
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
}
