import { describe, expect, test } from 'vitest'
import { Admissions } from '../src/checks/admissions.ts'
import { REFUND, serveApp } from './service.ts'

const THREE = { rule_id: 'three', limit: 3, window_seconds: 60, scope: 'per_user', algorithm: 'fixed_window' }
const EXPORTS = { rule_id: 'exports', limit: 1, window_seconds: 60, scope: 'per_user', algorithm: 'concurrency' }

describe('a refund', () => {
  test('gives back what the request took', async () => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', cost: 3, request_id: 'r-1' })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: false })
    expect(await post(REFUND, { request_id: 'r-1' })).toMatchObject({ status: 200, body: { refunded: true } })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: true, remaining: 2 })
  })

  test('of some units gives back so many', async () => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', cost: 3, request_id: 'r-1' })
    await post(REFUND, { request_id: 'r-1', units: 2 })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ remaining: 2 })
  })

  test('works by the id that detail tells', async () => {
    const { check, post } = await serveApp([THREE])
    const { request_id } = await check({ client_id: 'a', cost: 3, detail: true })
    expect(await post(REFUND, { request_id })).toMatchObject({ status: 200 })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ remaining: 3 })
  })

  test('works once: the second is a 409, and changes nothing', async () => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', request_id: 'r-1' })
    await check({ client_id: 'a', request_id: 'r-2' })
    await post(REFUND, { request_id: 'r-1' })
    const { status, body } = await post(REFUND, { request_id: 'r-1' })
    const errors = [{ field: 'request_id', value: 'r-1', fix: 'refund a request once only' }]
    expect({ status, body }).toMatchObject({ status: 409, body: { code: 'REFUND_REPEATED', errors } })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ remaining: 2 })
  })

  test('an id that was used again means the newest request', async () => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', cost: 1, request_id: 'r' })
    await check({ client_id: 'b', cost: 3, request_id: 'r' })
    expect(await post(REFUND, { request_id: 'r' })).toMatchObject({ status: 200 })
    expect(await check({ client_id: 'a', dry_run: true })).toMatchObject({ remaining: 2 })
    expect(await check({ client_id: 'b', dry_run: true })).toMatchObject({ remaining: 3 })
  })

  test('of 0 units releases the permit and keeps what was consumed', async () => {
    const { check, post } = await serveApp([THREE, EXPORTS])
    const { request_id } = await check({ client_id: 'a' })
    expect(await check({ client_id: 'a' })).toMatchObject({ allowed: false, rule_id: 'exports' })
    for (let times = 0; times < 2; times += 1) {
      expect(await post(REFUND, { request_id, units: 0 })).toMatchObject({ status: 200, body: { refunded: true } })
    }
    const { allowed, rules } = await check({ client_id: 'a', detail: true })
    expect(allowed).toBe(true)
    expect(rules).toContainEqual(expect.objectContaining({ rule_id: 'three', remaining: 1 }))
  })
})

describe('there is nothing to refund', () => {
  test.each([
    ['an unknown id', {}],
    ['a refused request', { cost: 4, request_id: 'r-1' }],
    ['a dry run', { dry_run: true, request_id: 'r-1' }],
  ])('%s is a 404 that tells the possible reasons', async (_name, request) => {
    const { check, post } = await serveApp([THREE])
    await check({ client_id: 'a', ...request })
    const { status, body } = await post(REFUND, { request_id: 'r-1' })
    expect({ status, body }).toMatchObject({ status: 404, body: { code: 'REFUND_UNKNOWN' } })
    expect(body.detail).toMatch(/refused.*dry run.*another node.*too long ago.*neither request_id nor detail/)
  })

  test.each([
    ['{}', 'request_id', 'give 1 to 1024 characters without control characters, "{" and "}"'],
    ['{"request_id":"r","units":-1}', 'units', 'give a whole number from 0 to 1000000000'],
    ['{"request_id":"r","units":0.5}', 'units', 'give a whole number from 0 to 1000000000'],
    ['{"request_id":"r","unit":1}', 'unit', 'unknown field; did you mean "units"?'],
  ])('%s is a 400', async (sent, field, fix) => {
    const { post } = await serveApp([THREE])
    expect(await post(REFUND, sent)).toMatchObject({ status: 400, body: { errors: [{ field, fix }] } })
  })
})

test('only so many requests are remembered: the oldest go, and those that could have been refunded are counted', () => {
  let dropped = 0
  const admissions = new Admissions(() => {
    dropped += 1
  }, 3)
  const decision = (requestId: string) => ({ requestId }) as Parameters<Admissions['remember']>[0]
  const known = () => ['a', 'b', 'c', 'd', 'e'].filter((id) => admissions.find(id) !== undefined).join('')
  for (const id of ['a', 'b', 'a']) admissions.remember(decision(id))
  expect({ known: known(), dropped }).toEqual({ known: 'ab', dropped: 0 })
  admissions.remember(decision('c')) // in the place of the first "a", which the second has replaced
  expect({ known: known(), dropped }).toEqual({ known: 'abc', dropped: 0 })
  admissions.remember(decision('d'))
  expect({ known: known(), dropped }).toEqual({ known: 'acd', dropped: 1 })
  const oldest = admissions.find('a')
  if (oldest !== undefined) oldest.refunded = true
  admissions.remember(decision('e'))
  expect({ known: known(), dropped }).toEqual({ known: 'cde', dropped: 1 })
})
