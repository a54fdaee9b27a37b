import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { rateLimit as theirRateLimit } from 'express-rate-limit'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { wallClock } from '../clock.ts'
import { rateLimit } from '../middleware/express.ts'
import { readLimits } from './limit-headers.ts'

const NOW_MS = Date.UTC(2030, 0, 1)
const LIMIT = { name: 'default', unit: 'requests', quota: 100, remaining: 50, resetMs: 30_000, windowMs: undefined }
const MINUTE = { ...LIMIT, windowMs: 60_000 }
const IN_30_S = { epoch: NOW_MS / 1000 + 30, iso: '2030-01-01T00:00:30Z', date: 'Tue, 01 Jan 2030 00:00:30 GMT' }

function parsed(headers: Record<string, string>) {
  return readLimits(new Headers(headers), NOW_MS)
}

const triple = (prefix: string, reset: string | number) => ({
  [`${prefix}Limit`]: '100',
  [`${prefix}Remaining`]: '50',
  [`${prefix}Reset`]: String(reset),
})

describe('every generation of headers is parsed', () => {
  test.each<[string, Record<string, string>, object[]]>([
    [
      'draft 11',
      { 'RateLimit-Policy': '"api";q=100;w=60', RateLimit: '"api";r=50;t=30' },
      [{ ...MINUTE, name: 'api' }],
    ],
    [
      'several policies, in several units',
      {
        'RateLimit-Policy': '"hour";q=9;w=3600, "bytes";q=65535;qu="content-bytes";w=10;pk=:c2Q=:',
        RateLimit: '"hour";r=8;t=5, "bytes";r=1;pk=:c2Q=:',
      },
      [
        { name: 'hour', unit: 'requests', quota: 9, remaining: 8, resetMs: 5000, windowMs: 3_600_000 },
        { name: 'bytes', unit: 'content-bytes', quota: 65_535, remaining: 1, resetMs: undefined, windowMs: 10_000 },
      ],
    ],
    [
      'draft 11 of Sluice, which says when the next call passes',
      { RateLimit: '"a";r=0;t=60;sluice-retry-after=20, "b";r=0;t=60;sluice-retry-after=soon' },
      [
        { ...LIMIT, name: 'a', quota: undefined, remaining: 0, resetMs: 60_000, retryMs: 20_000 },
        { ...LIMIT, name: 'b', quota: undefined, remaining: 0, resetMs: 60_000 },
      ],
    ],
    ['draft 8 without a policy', { RateLimit: '"default"; r=50; t=30' }, [{ ...LIMIT, quota: undefined }]],
    ['draft 7', { 'RateLimit-Policy': '100;w=60', RateLimit: 'limit=100, remaining=50, reset=30' }, [MINUTE]],
    ['draft 6', { 'RateLimit-Policy': '10;w=1, 100;w=60', ...triple('RateLimit-', 30) }, [MINUTE]],
    ['draft 3', { ...triple('X-RateLimit-', 30), 'X-RateLimit-Limit': '100, 100;w=60' }, [LIMIT]],
    ['X-RateLimit, seconds from now', triple('X-RateLimit-', 30), [LIMIT]],
    ['X-RateLimit, epoch seconds', triple('X-RateLimit-', IN_30_S.epoch), [LIMIT]],
    ['X-RateLimit, epoch milliseconds', triple('X-RateLimit-', IN_30_S.epoch * 1000), [LIMIT]],
    ['X-RateLimit, a date', triple('X-RateLimit-', IN_30_S.iso), [LIMIT]],
    ['X-Rate-Limit', triple('X-Rate-Limit-', IN_30_S.epoch), [LIMIT]],
    [
      'GitHub',
      { ...triple('x-ratelimit-', IN_30_S.epoch), 'x-ratelimit-used': '50', 'x-ratelimit-resource': 'search' },
      [{ ...LIMIT, name: 'search' }],
    ],
    [
      'OpenAI',
      {
        'x-ratelimit-limit-requests': '100',
        'x-ratelimit-remaining-requests': '50',
        'x-ratelimit-reset-requests': '30s',
        'x-ratelimit-limit-tokens': '150000',
        'x-ratelimit-remaining-tokens': '149984',
        'x-ratelimit-reset-tokens': '6m0.5s',
      },
      [
        { ...LIMIT, name: 'requests' },
        { ...LIMIT, name: 'tokens', unit: 'tokens', quota: 150_000, remaining: 149_984, resetMs: 360_500 },
      ],
    ],
    [
      'Anthropic',
      {
        'anthropic-ratelimit-requests-limit': '100',
        'anthropic-ratelimit-requests-remaining': '50',
        'anthropic-ratelimit-requests-reset': IN_30_S.iso,
        'anthropic-ratelimit-input-tokens-limit': '40000',
        'anthropic-ratelimit-input-tokens-remaining': '0',
        'anthropic-ratelimit-input-tokens-reset': IN_30_S.iso,
      },
      [
        { ...LIMIT, name: 'input-tokens', unit: 'input-tokens', quota: 40_000, remaining: 0 },
        { ...LIMIT, name: 'requests' },
      ],
    ],
    ['a decimal count', { ...triple('X-RateLimit-', 30), 'X-RateLimit-Remaining': '50.0' }, [LIMIT]],
    ['the newest of several', { RateLimit: '"new";r=1', ...triple('X-RateLimit-', 30) }, [{ name: 'new' }]],
  ])('%s', (_generation, headers, limits) => {
    expect(parsed(headers).limits).toMatchObject(limits)
    expect(parsed(headers).limits).toHaveLength(limits.length)
  })

  test.each<[string, Record<string, string>]>([
    ['seconds', { 'Retry-After': '30' }],
    ['a date', { 'Retry-After': IN_30_S.date }],
    ['a date of long ago', { 'Retry-After': 'Tuesday, 01-Jan-30 00:00:30 GMT' }],
    ['a date that does not name its zone', { 'Retry-After': 'Tue Jan  1 00:00:30 2030' }],
    ['milliseconds, which are preferred', { 'Retry-After-Ms': '30000', 'Retry-After': '31' }],
  ])('Retry-After as %s', (_form, headers) => {
    expect(parsed(headers).retryAfterMs).toBe(30_000)
  })

  test('a time is compared with the clock of the server', () => {
    const headers = { ...triple('X-RateLimit-', IN_30_S.epoch), Date: 'Tue, 01 Jan 2030 00:00:20 GMT' }
    expect(parsed(headers).limits).toMatchObject([{ resetMs: 10_000 }])
  })

  test('a time in the past counts as now', () => {
    expect(parsed({ 'Retry-After': 'Sun, 06 Nov 1994 08:49:37 GMT' }).retryAfterMs).toBe(0)
  })
})

describe('ignored', () => {
  test.each<Record<string, string>>([
    { RateLimit: '"a";r=50;t=30,' },
    { RateLimit: '"a";t=30' },
    { RateLimit: '"a";r=-1;t=30' },
    { RateLimit: '"a";r=1.5;t=30' },
    { RateLimit: '"a";r=1;t="x"' },
    { RateLimit: 'a;r=1' },
    { RateLimit: 'limit=100' },
    { RateLimit: '"é";r=1' },
    { 'X-RateLimit-Remaining': 'many' },
    { 'X-RateLimit-Remaining': '-1' },
    { 'X-RateLimit-Remaining': '1e3' },
    { 'X-RateLimit-Limit': '100', 'X-RateLimit-Reset': '30' },
    { 'X-RateLimit-Remaining': '9'.repeat(16) },
    { 'Retry-After': 'soon' },
    { 'Retry-After': '-5' },
    { 'Retry-After': '2030'.repeat(9) },
    { 'Retry-After': 'Tue, 99 Jan 2030 00:00:30 GMT' },
    { RateLimit: '"a";r=0;t=9', 'Retry-After': '9', Age: '3' },
  ])('%j', (headers) => {
    expect(parsed(headers)).toEqual({ limits: [], retryAfterMs: undefined })
  })

  test('a time decades ago, which is read as a wait', () => {
    expect(parsed({ 'Retry-After': '1000000000' }).retryAfterMs).toBe(1e12)
    expect(parsed({ 'Retry-After': String(NOW_MS / 1000 - 5) }).retryAfterMs).toBe(0)
  })

  test('more than 32 limits', () => {
    const list = Array.from({ length: 40 }, (_, index) => `"${index}";r=1`)
    expect(parsed({ RateLimit: list.join(', ') }).limits).toHaveLength(32)
  })

  test('arbitrary headers never throw, and every parsed number is valid', () => {
    const names = ['ratelimit', 'ratelimit-policy', 'ratelimit-remaining', 'x-ratelimit-remaining', 'x-ratelimit-reset']
    const others = ['x-ratelimit-reset-tokens', 'anthropic-ratelimit-requests-reset', 'retry-after', 'date', 'age']
    const words = fc.constantFrom(
      '"a"',
      ';r=',
      ';t=',
      '1',
      '0',
      '99999999999',
      ', ',
      '=',
      's',
      'm',
      'ms',
      '-',
      '.',
      'remaining',
    )
    const field = fc.oneof(
      fc.array(words, { maxLength: 8 }).map((parts) => parts.join('')),
      fc.stringMatching(/^[\x20-\x7e]{0,30}$/),
    )
    const headers = fc.dictionary(fc.constantFrom(...names, ...others), field)
    fc.assert(
      fc.property(headers, (record) => {
        const { limits, retryAfterMs = 0 } = parsed(record)
        const numbers = limits.flatMap(({ quota = 0, remaining, resetMs = 0, windowMs = 0 }) => [
          ...[quota, remaining, resetMs, windowMs],
        ])
        expect([retryAfterMs, ...numbers].filter((number) => !(number >= 0 && number < 1e16))).toEqual([])
      }),
      { numRuns: 2000 },
    )
  })
})

describe('headers of real servers are parsed', () => {
  type App = RequestListener & { use(...handlers: unknown[]): App }
  const express = createRequire(import.meta.url)('express') as () => App

  async function headersOf(handler: unknown): Promise<Headers> {
    const app = express().use(handler, (_req: unknown, res: { end(): void }) => res.end())
    const server = createServer(app).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { headers } = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
    return headers
  }

  const theirs = (options: object) =>
    theirRateLimit({ windowMs: 86_400_000, limit: 5, legacyHeaders: false, ...options })

  test.each<[string, unknown]>([
    ['express-rate-limit, draft 8', theirs({ standardHeaders: 'draft-8' })],
    ['express-rate-limit, draft 7', theirs({ standardHeaders: 'draft-7' })],
    ['express-rate-limit, draft 6', theirs({ standardHeaders: 'draft-6' })],
    ['express-rate-limit, legacy', theirs({ legacyHeaders: true })],
    ['Sluice', rateLimit({ limit: 5, window: '1d' })],
    ['Sluice, three fields', rateLimit({ limit: 5, window: '1d', headers: { style: 'draft-6' } })],
    ['Sluice, legacy', rateLimit({ limit: 5, window: '1d', headers: { style: 'legacy' } })],
  ])('%s', async (_writer, handler) => {
    const { limits } = readLimits(await headersOf(handler), wallClock.nowUs() / 1000)
    expect(limits).toMatchObject([{ unit: 'requests', quota: 5, remaining: 4 }])
    expect(limits[0]?.resetMs).toBeGreaterThan(0)
    expect(limits[0]?.resetMs).toBeLessThanOrEqual(86_401_000)
  })
})
