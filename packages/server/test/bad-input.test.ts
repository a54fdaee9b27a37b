import { connect } from 'node:net'
import { text as readText } from 'node:stream/consumers'
import { describe, expect, test } from 'vitest'
import { BATCH, CHECK, REFUND, serveApp, serveFile } from './service.ts'

type Problem = {
  status: number
  code: string
  detail: string
  errors: { field: string; value: unknown; fix: string }[]
}

const DEEP = `${'['.repeat(20_000)}${']'.repeat(20_000)}`
const KEY_FIX = 'give 1 to 1024 characters without control characters, "{" and "}"'
const COST_FIX = 'give a whole number from 1 to 1000000000'
const NAMES = Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`name${index}`, 1]))

/** body → field, displayed value and fix. */
const MISTAKES: [name: string, body: string, field: string, value: unknown, fix: string | RegExp][] = [
  ['an unknown field', '{"client_idd":"x"}', 'client_idd', 'x', 'unknown field; did you mean "client_id"?'],
  ['a field far from any', '{"foo":1}', 'foo', 1, /^unknown field; remove it, or use one of client_id, endpoint/],
  ['__proto__', '{"__proto__":{"a":1}}', '__proto__', '{"a":1}', /^unknown field/],
  ['client_id of a wrong type', '{"client_id":5}', 'client_id', 5, KEY_FIX],
  ['client_id null', '{"client_id":null}', 'client_id', null, KEY_FIX],
  ['an empty client_id', '{"client_id":""}', 'client_id', '', KEY_FIX],
  ['a client_id of 1025', `{"client_id":"${'x'.repeat(1025)}"}`, 'client_id', `${'x'.repeat(79)}…`, KEY_FIX],
  ['CR and LF in a key', '{"client_id":"a\\r\\nb"}', 'client_id', 'a\r\nb', KEY_FIX],
  ['NUL in a key', '{"api_key":"a\\u0000"}', 'api_key', 'a\0', KEY_FIX],
  ['DEL in a key', '{"tenant":"a\\u007f"}', 'tenant', 'a\x7f', KEY_FIX],
  ['half a surrogate pair', '{"client_id":"\\ud800"}', 'client_id', '\ud800', KEY_FIX],
  ['{ in a key', '{"tenant":"a{b"}', 'tenant', 'a{b', KEY_FIX],
  ['} in a plan', '{"plan":"a}"}', 'plan', 'a}', KEY_FIX],
  ['{} in a request_id', '{"request_id":"{}"}', 'request_id', '{}', KEY_FIX],
  ['a cost of 0', '{"cost":0}', 'cost', 0, COST_FIX],
  ['a negative cost', '{"cost":-1}', 'cost', -1, COST_FIX],
  ['a cost of 1.5', '{"cost":1.5}', 'cost', 1.5, COST_FIX],
  ['a cost of 2^53', '{"cost":9007199254740992}', 'cost', 9007199254740992, COST_FIX],
  ['an infinite cost', '{"cost":1e999}', 'cost', null, COST_FIX],
  ['"NaN" as cost', '{"cost":"NaN"}', 'cost', 'NaN', COST_FIX],
  ['a cost of a wrong type', '{"cost":"1"}', 'cost', '1', COST_FIX],
  ['an ip_address that is none', '{"ip_address":"1.2.3"}', 'ip_address', '1.2.3', /^give an IPv4 or IPv6 address/],
  ['an ip_address with a port', '{"ip_address":"1.2.3.4:80"}', 'ip_address', '1.2.3.4:80', /^give an IPv4/],
  ['an empty ip_address', '{"ip_address":""}', 'ip_address', '', /^give an IPv4/],
  ['the user of the library', '{"user":"x"}', 'user', 'x', 'unknown field; did you mean "client_id"?'],
  ['the path of the library', '{"path":"/x"}', 'path', '/x', 'unknown field; did you mean "endpoint"?'],
  ['the ip of the library', '{"ip":"::1"}', 'ip', '::1', 'unknown field; did you mean "ip_address"?'],
  ['the apiKey of the library', '{"apiKey":"x"}', 'apiKey', 'x', 'unknown field; did you mean "api_key"?'],
  ['an unknown method', '{"method":"GTE"}', 'method', 'GTE', 'unknown method; did you mean "GET"?'],
  ['a method that is none', '{"method":"whatever"}', 'method', 'whatever', 'use an HTTP method, such as GET or POST'],
  ['an endpoint without a slash', '{"endpoint":"api"}', 'endpoint', 'api', /^give a path that starts with "\/"/],
  ['an endpoint with a line break', '{"endpoint":"/a\\nb"}', 'endpoint', '/a\nb', /^give a path/],
  ['dry_run of a wrong type', '{"dry_run":1}', 'dry_run', 1, 'use true or false'],
  ['detail of a wrong type', '{"detail":"yes"}', 'detail', 'yes', 'use true or false'],
  ['attributes as a list', '{"attributes":[1]}', 'attributes', '[1]', /^give an object with at most 32 names/],
  ['33 attributes', JSON.stringify({ attributes: NAMES }), 'attributes', expect.any(String), /at most 32 names/],
  ['a nested attribute', '{"attributes":{"a":{"b":1}}}', 'attributes.a', '{"b":1}', /^give a number, true, false/],
  ['a line break in an attribute', '{"attributes":{"a":"\\n"}}', 'attributes.a', '\n', /without control characters$/],
  [
    'a long attribute name',
    `{"attributes":{"${'n'.repeat(129)}":1}}`,
    expect.stringMatching(/^attributes\.n{129}$/),
    1,
    /^use a name/,
  ],
  ['__proto__ as an attribute', '{"attributes":{"__proto__":1}}', 'attributes.__proto__', 1, /other than "__proto__"$/],
  ['deep nesting', `{"attributes":{"a":${DEEP}}}`, 'attributes.a', expect.stringMatching(/^\[/), /^give a number/],
  ['a list instead of an object', '[]', 'body', '[]', 'send a JSON object'],
  ['a text instead of an object', '"x"', 'body', 'x', 'send a JSON object'],
  ['null instead of an object', 'null', 'body', null, 'send a JSON object'],
] as [string, string, string, unknown, string | RegExp][]

test('names such as __proto__ and constructor work as plans, rules, limits and attributes', async () => {
  const rules = `[
    { "rule_id": "__proto__", "limits": [{ "name": "__proto__", "limit": 1, "window": "1d" }], "scope": "per_user",
      "when": { "constructor": "a", "prototype": "b" }, "by_plan": { "__proto__": { "limit": 0 } } }
  ]`
  const { check } = await serveFile(rules)
  const request = { client_id: 'u', attributes: { constructor: 'a', prototype: 'b' } }
  expect(await check({ ...request, plan: '__proto__' })).toMatchObject({ allowed: false, limit: 0 })
  expect(await check(request)).toMatchObject({ allowed: true, limit: 1 })
  expect(await check(request)).toMatchObject({ allowed: false, rule_id: '__proto__' })
  expect(await check({ client_id: 'u' })).toMatchObject({ limit: null })
})

test('bad input to a check: each mistake is a 400 that names field, value and fix', async () => {
  const { post } = await serveApp([{ rule_id: 'any', limit: 1, window_seconds: 60 }])
  for (const [name, sent, field, value, fix] of MISTAKES) {
    const { status, headers, body } = await post(CHECK, sent)
    const { code, errors } = body as unknown as Problem
    expect({ name, status, code, type: headers.get('content-type') }, name).toEqual({
      ...{ name, status: 400, code: 'REQUEST_INVALID' },
      type: 'application/problem+json; charset=utf-8',
    })
    expect(errors, name).toEqual([{ field, value, fix: typeof fix === 'string' ? fix : expect.stringMatching(fix) }])
  }
  expect((await post(CHECK, {})).body, 'none of them consumed anything').toMatchObject({ allowed: true })
})

test('several errors are reported together', async () => {
  const { post } = await serveApp([])
  const { body } = await post(CHECK, {
    client_id: '',
    cost: 0,
    detail: 1,
    endpoint: 'x',
    metod: 'GET',
    attributes: { a: [] },
  })
  const { errors } = body as unknown as Problem
  const fields = errors.map(({ field }) => field).sort()
  expect(fields).toEqual(['attributes.a', 'client_id', 'cost', 'detail', 'endpoint', 'metod'])
})

test('thousands of errors fit in a problem of bounded size', async () => {
  const { post } = await serveApp([])
  const fields = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`f${index}`, 1]))
  const { body } = await post(CHECK, fields)
  expect((body as unknown as Problem).errors).toHaveLength(20)
})

test.each([
  ['NaN', '{"cost":NaN}', '{"cost":NaN}', 'line 1, character 9'],
  ['no end', '{"client_id":"x"', '{"client_id":"x"', 'line 1, character 17'],
  ['a comma too many', '{"a":1,\n"b":2,\n}', '"b":2,\n}', 'line 3, character 1'],
  ['nothing at all', '', '', 'line 1, character 1'],
  ['not JSON', 'client_id=x', 'client_id=x', 'line 1, character 1'],
  ['an open list, very deep', '['.repeat(60_000), '[', 'line 1, character 60001'],
])('malformed JSON (%s) is a 400 that names the position', async (_name, sent, around, place) => {
  const { post } = await serveApp([])
  const { status, body } = await post(CHECK, sent)
  const { code, detail, errors } = body as unknown as Problem
  expect({ status, code }).toEqual({ status: 400, code: 'JSON_MALFORMED' })
  expect(detail).toContain(place)
  expect(errors).toMatchObject([{ field: 'body', value: expect.stringContaining(around), fix: expect.any(String) }])
})

describe('rejected bodies', () => {
  test.each([
    ['a client_id of 10 MB', CHECK, `{"client_id":"${'x'.repeat(10_000_000)}"}`],
    ['a check of 65 KiB', CHECK, JSON.stringify({ client_id: 'x'.repeat(65 * 1024) })],
    ['a refund of 65 KiB', REFUND, JSON.stringify({ request_id: 'x'.repeat(65 * 1024) })],
    ['a batch of 3 MiB', BATCH, JSON.stringify({ checks: [{ client_id: 'x'.repeat(3 * 1024 * 1024) }] })],
  ])('%s is a 413', async (_name, path, sent) => {
    const { post } = await serveApp([])
    const { status, body } = await post(path, sent)
    const { code, errors } = body as unknown as Problem
    expect({ status, code }).toEqual({ status: 413, code: 'BODY_TOO_LARGE' })
    const fix = 'send at most 64 KiB, 1 MiB to proposals, 2 MiB to check/batch or simulate, or 8 MiB to rule-set'
    expect(errors).toEqual([{ field: 'body', value: `${sent.length} bytes`, fix }])
  })

  test.each(['text/plain', 'application/x-www-form-urlencoded', 'application/xml'])('%s is a 415', async (type) => {
    const { send } = await serveApp([])
    const { status, body } = await send(CHECK, { method: 'POST', headers: { 'content-type': type }, body: '{}' })
    const { code, errors } = body as unknown as Problem
    expect({ status, code }).toEqual({ status: 415, code: 'MEDIA_TYPE_UNSUPPORTED' })
    const fix = 'send JSON with the header Content-Type: application/json'
    expect(errors).toEqual([{ field: 'Content-Type', value: type, fix }])
  })

  test('a POST without a body is a 400 that asks for one', async () => {
    const { send } = await serveApp([])
    const { status, body } = await send(CHECK, { method: 'POST' })
    expect({ status, body }).toMatchObject({
      status: 400,
      body: { errors: [{ field: 'body', fix: 'send a JSON object' }] },
    })
  })
})

test.each([
  ['GET', '/api/v1/rate-limit/chek', 404, 'did you mean /api/v1/rate-limit/check?'],
  ['GET', '/metrics/', 404, 'did you mean /metrics?'],
  ['GET', '/nowhere/at/all', 404, 'GET / lists all routes'],
  ['GET', '/%zz', 400, 'fix its percent-encoding'],
])('%s %s is a %i with the fix', async (method, path, status, fix) => {
  const { send } = await serveApp([])
  const answer = await send(path, { method })
  expect(answer).toMatchObject({ status, body: { status, errors: [{ field: 'path', fix }] } })
  expect(answer.headers.get('content-type')).toContain('application/problem+json')
})

test.each([
  ['GET', CHECK, 'POST'],
  ['DELETE', '/livez', 'GET, HEAD'],
  ['POST', '/api/v1/rate-limit/rules/x', 'GET, HEAD, PUT, PATCH, DELETE'],
])('%s %s is a 405 that names the allowed methods', async (method, path, allow) => {
  const { send } = await serveApp([])
  const answer = await send(path, { method })
  expect({ status: answer.status, allow: answer.headers.get('allow') }).toEqual({ status: 405, allow })
  expect(answer.body).toMatchObject({ code: 'METHOD_NOT_ALLOWED' })
})

test('bytes that are not HTTP do not affect other clients', async () => {
  const { address, check } = await serveApp([])
  for (const garbage of [
    '\0\0\0\r\n\r\n',
    'GET / HTTP/9.9\r\n\r\n',
    `GET / HTTP/1.1\r\nx: ${'y'.repeat(100_000)}\r\n\r\n`,
  ]) {
    const socket = connect(Number(new URL(address).port), '127.0.0.1')
    socket.on('error', () => {}) // the server may hang up while we still write
    socket.end(garbage)
    await readText(socket).catch(() => {})
  }
  expect(await check({})).toMatchObject({ allowed: true })
})

test.each([
  ['no HTTP', 'hello\r\n\r\n', 'malformed HTTP/1.1 request'],
  ['headers of 20 KB', `GET / HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`, 'longer than 16 KiB'],
])('%s is answered with a problem document', async (_name, sent, detail) => {
  const { address } = await serveApp([])
  const socket = connect(Number(new URL(address).port), '127.0.0.1')
  socket.write(sent)
  const [head = '', body = ''] = (await readText(socket)).split('\r\n\r\n')
  expect(head).toMatch(/^HTTP\/1.1 400 [\s\S]*application\/problem\+json/)
  expect(JSON.parse(body)).toMatchObject({ code: 'REQUEST_INVALID', detail: expect.stringContaining(detail) })
})
