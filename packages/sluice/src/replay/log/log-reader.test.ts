import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../testing/seeded-random.ts'
import type { RecordedCheck } from '../recorded-request.ts'
import { type LogFormat, LogReader } from './log-reader.ts'

const COMMON = '203.0.113.7 - alice [31/Jan/2030:12:00:00 +0100] "POST /api/v1/comments?x=1 HTTP/1.1" 201 512'
const AT_US = Date.UTC(2030, 0, 31, 11) * 1000

function read(line: string, format: LogFormat = 'auto'): RecordedCheck | string | undefined {
  const reader = new LogReader(format)
  return (reader.read(line) as RecordedCheck | undefined) ?? reader.reported[0]?.reason
}

describe('Common and Combined Log Format', () => {
  const facts = { ip: '203.0.113.7', user: 'alice', method: 'POST', path: '/api/v1/comments?x=1' }

  test.each([
    ['common', COMMON],
    ['with a virtual host', `example.org:443 ${COMMON}`],
    ['with CRLF', `${COMMON}\r`],
    ['with more fields', `${COMMON} "-" "-" 0.003 upstream`],
  ])('%s', (_, line) => {
    expect(read(line)).toEqual({ kind: 'check', atUs: AT_US, subject: facts, allowed: true })
  })

  test('combined has referer and user agent as attributes', () => {
    const line = `${COMMON} "https://example.org/\\"q\\"" "curl/8 \\x22x\\x22"`
    const attributes = { 'header.referer': 'https://example.org/"q"', 'header.user-agent': 'curl/8 "x"' }
    expect(read(line)).toMatchObject({ subject: { ...facts, attributes } })
    expect(read(COMMON, 'combined')).toMatch(/referer/)
  })

  test('status 429 is a recorded refusal', () => {
    expect(read(COMMON.replace(' 201 ', ' 429 '))).toMatchObject({ allowed: false })
  })

  test.each([
    ['an absolute URL', 'GET http://example.org/a/b?c HTTP/1.1', '/a/b?c'],
    ['a URL without a path', 'GET http://example.org HTTP/1.1', '/'],
    ['an asterisk', 'OPTIONS * HTTP/1.1', '/*'],
    ['HTTP/0.9', 'GET /a', '/a'],
  ])('%s has a path', (_, request, path) => {
    const line = COMMON.replace(/"POST[^"]*"/, () => `"${request}"`)
    expect(read(line)).toMatchObject({ subject: { path } })
  })

  test.each([
    ['not a log line', 'hello world'],
    ['the client is not an address', COMMON.replace('203.0.113.7', 'localhost')],
    ['the time cannot be read', COMMON.replace('Jan', 'Foo')],
    ['the time cannot be read', COMMON.replace(':12:', ':99:')],
    ['the request cannot be read', COMMON.replace(/"POST[^"]*"/, '"-"')],
    ['the request cannot be read', COMMON.replace(/"POST[^"]*"/, '"\\x16\\x03\\x01"')],
    ['longer than 65536 characters', COMMON + 'x'.repeat(70_000)],
    ['not in Common', COMMON.replace('"POST', 'POST')],
  ])('malformed: %s', (reason, line) => {
    expect(read(line)).toMatch(reason === 'not a log line' ? /not in Common/ : new RegExp(reason))
  })
})

describe('JSON lines', () => {
  const expected = { ip: '203.0.113.7', method: 'GET', path: '/a' }
  const at = '2030-01-31T11:00:00'

  test.each<[string, object]>([
    [
      'nginx',
      {
        time_iso8601: `${at}+00:00`,
        remote_addr: '203.0.113.7',
        request_method: 'GET',
        request_uri: '/a',
        status: '200',
      },
    ],
    [
      'nginx with msec',
      { msec: '1896087600.000', remote_addr: '203.0.113.7', request: 'GET /a HTTP/1.1', status: 200 },
    ],
    ['Caddy', { ts: 1_896_087_600.0, request: { remote_ip: '203.0.113.7', method: 'GET', uri: '/a' }, status: 200 }],
    [
      'Traefik',
      {
        StartUTC: `${at}.000000000Z`,
        ClientHost: '203.0.113.7',
        RequestMethod: 'GET',
        RequestPath: '/a',
        DownstreamStatus: 200,
      },
    ],
    [
      'Envoy',
      {
        start_time: `${at}.000Z`,
        downstream_remote_address: '203.0.113.7:5123',
        method: 'GET',
        path: '/a',
        response_code: 200,
      },
    ],
    [
      'pino',
      {
        time: 1_896_087_600_000,
        req: { method: 'GET', url: '/a', remoteAddress: '203.0.113.7' },
        res: { statusCode: 200 },
      },
    ],
    [
      'ECS',
      {
        '@timestamp': `${at}.000Z`,
        source: { ip: '203.0.113.7' },
        http: { request: { method: 'GET' }, response: { status_code: 200 } },
        url: { path: '/a' },
      },
    ],
    [
      'ECS with dots',
      {
        '@timestamp': `${at}Z`,
        'source.ip': '203.0.113.7',
        'http.request.method': 'GET',
        'url.path': '/a',
        'http.response.status_code': 200,
      },
    ],
    [
      'Google Cloud',
      {
        timestamp: `${at}Z`,
        httpRequest: {
          remoteIp: '203.0.113.7',
          requestMethod: 'GET',
          requestUrl: 'https://example.org/a',
          status: 200,
        },
      },
    ],
    ['the API of Sluice', { at: `${at}Z`, ip_address: '203.0.113.7', method: 'GET', endpoint: '/a', allowed: true }],
  ])('%s', (_, line) => {
    expect(read(JSON.stringify(line))).toMatchObject({ atUs: AT_US, subject: expected, allowed: true })
  })

  test('all facts of a subject', () => {
    const line = {
      ...{ time: `${at}.123456Z`, client_id: 'ann', api_key: 'k', tenant: 'acme', plan: 'pro', cost: 3, status: 429 },
      attributes: { country: 'NL', nested: {}, beta: true },
    }
    expect(read(JSON.stringify(line))).toMatchObject({
      ...{ atUs: AT_US + 123_456, allowed: false },
      subject: {
        ...{ user: 'ann', apiKey: 'k', tenant: 'acme', plan: 'pro', cost: 3 },
        attributes: { country: 'NL', beta: true },
      },
    })
  })

  test.each([
    ['not JSON', '{"a":'],
    ['no time', '{}'],
    ['no time', '{"time":"yesterday"}'],
    ['no time', '{"time":1e400}'],
    ['no time', '{"time":{"toString":1}}'],
    ['not an address', '{"time":1896087600,"ip":"::zz"}'],
    ['not a JSON object', '[1]'],
  ])('malformed: %s (%s)', (reason, line) => {
    expect(read(line, 'json')).toMatch(reason)
  })

  test('inherited properties are not fields', () => {
    expect(read('{"time":1896087600,"__proto__":{"ip":"x"},"constructor":1}')).toMatchObject({ subject: {} })
  })
})

describe('events of Sluice', () => {
  const event = {
    ...{ event_id: 'e', timestamp: AT_US / 1000, store_time_us: AT_US + 7, sequence: 4, node: 'n', sample_rate: 1 },
    ...{ operation: 'check', client_id: 'ann', ip: '192.0.2.1', endpoint: '/a', method: 'GET', request_id: 'r' },
    ...{ allowed: false, rule_id: 'x', cost: 6, request_cost: 2, admission_rate: 0.1, sample_position: 0.05 },
    attributes: '{"country":"NL"}',
  }

  test('a check', () => {
    expect(read(JSON.stringify(event))).toEqual({
      ...{ kind: 'check', atUs: AT_US + 7, requestId: 'r', allowed: false, ruleId: 'x' },
      ...{ node: 'n', sequence: 4, position: 0.05, sampleRate: 0.1 },
      subject: {
        ...{ user: 'ann', ip: '192.0.2.1', path: '/a', method: 'GET', cost: 2 },
        attributes: { country: 'NL' },
      },
    })
  })

  test.each(['override_id', 'bypass_id', 'signal'])('a check with %s had an exception', (name) => {
    expect(read(JSON.stringify({ ...event, [name]: 'x' }))).toMatchObject({ exception: true })
    expect(read(JSON.stringify({ ...event, [name]: null }))).not.toHaveProperty('exception')
  })

  test('a refund and a reset', () => {
    const refund = { ...event, operation: 'refund', request_cost: null }
    expect(read(JSON.stringify(refund))).toMatchObject({ kind: 'refund', requestId: 'r', units: undefined })
    const reset = { ...event, operation: 'reset', ip: null, attributes: null, endpoint: null, method: null }
    expect(read(JSON.stringify(reset))).toMatchObject({ kind: 'reset', ruleId: 'x', key: { user: 'ann' } })
  })

  test('a hashed address becomes an address of its own', () => {
    const hashed = (hash: string) => read(JSON.stringify({ ...event, ip: `hmac:${hash}` })) as RecordedCheck
    expect(hashed('0123456789abcdef').subject.ip).toBe('fd01:2345:6789:abcd::1')
    expect(hashed('0123456789abcdef').subject.ip).not.toBe(hashed('f123456789abcdef').subject.ip)
  })
})

test('malformed lines are counted, and the first ones are reported with their numbers', () => {
  const reader = new LogReader()
  for (const line of ['', COMMON, 'bad', ...Array.from({ length: 100 }, () => 'worse')]) reader.read(line)
  expect([reader.lines, reader.malformed, reader.reported.length]).toEqual([103, 101, 20])
  expect(reader.reported[0]).toEqual({ line: 3, reason: 'not in Common or Combined Log Format' })
})

test('no line crashes the reader or takes long', () => {
  const random = seededRandom(3)
  const parts = [
    '"',
    '\\',
    '[',
    ']',
    ' ',
    '-',
    '{',
    '}',
    ':',
    '/',
    '\0',
    '\ud800',
    'é',
    '9',
    'GET',
    COMMON,
    '{"time":1',
  ]
  const startedMs = performance.now()
  for (let count = 0; count < 20_000; count += 1) {
    const length = random.between(0, 30)
    const line = Array.from({ length }, () => random.pick(parts)).join('')
    for (const format of ['auto', 'common', 'combined', 'json'] as const) new LogReader(format).read(line)
  }
  for (const part of [...parts, '1 ', '" ', '\\"', '[[', '- - ']) {
    for (const format of ['common', 'combined', 'json'] as const) {
      new LogReader(format).read(`1.2.3.4 - - ${part.repeat(Math.floor(60_000 / part.length))}`)
      new LogReader(format).read(`${COMMON} "${part.repeat(Math.floor(60_000 / part.length))}`)
    }
  }
  expect(performance.now() - startedMs).toBeLessThan(60_000)
})
