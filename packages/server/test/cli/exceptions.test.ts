import { describe, expect, test } from 'vitest'
import { ADMIN_TOKEN, serveEmbedded, serveFile } from '../service.ts'
import { sluice } from './terminal.ts'

const ID = /^(ovr|byp|sig)_[0-9a-f]{24}\n$/
const HOSTILE = 'a\u001b[2J\nforged row\u202e'
const UNSAFE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u

async function node() {
  const client = await serveEmbedded({ adminToken: ADMIN_TOKEN })
  const env = { SLUICE_URL: client.address, SLUICE_TOKEN: ADMIN_TOKEN }
  const run = (line: string, more: readonly string[] = [], answer?: boolean) =>
    sluice([...line.split(' '), ...more], answer === undefined ? { env } : { env, answer })
  const allowed = async (client_id: string, more = {}) =>
    (await client.check({ client_id, endpoint: '/demo', ...more })).allowed
  return { run, allowed }
}

describe('the commands of exceptions', () => {
  test('overrides: set after a confirmation, listed, removed', async () => {
    const { run, allowed } = await node()
    expect(await run('overrides list')).toEqual({ code: 0, out: '', told: 'no overrides\n' })
    const set = 'overrides set user:eve --ban --expires-in 1h --reason fraud'
    expect(await run(set)).toMatchObject({ code: 2, told: expect.stringContaining('pass --yes or --dry-run') })
    expect(await run(set, [], false)).toMatchObject({ code: 3 })
    expect((await run(`${set} --dry-run`)).told).toBe(
      'would set an override of all rules, key user:eve: ban with 429, for 1h\n',
    )
    expect(await allowed('eve')).toBe(true)
    const made = await run(set, [], true)
    expect(made).toMatchObject({ code: 0, out: expect.stringMatching(ID) })
    expect(made.told).toMatch(/active, until \d{4}-/)
    expect(await allowed('eve')).toBe(false)
    expect((await run('overrides list')).out).toMatch(
      /ovr_\w+ +\(all rules\) +user:eve +ban 429 +\S+ +admin-token +fraud/,
    )
    const removed = await run(`overrides remove ${made.out.trim()} --yes`)
    expect(removed).toMatchObject({ code: 0, told: expect.stringMatching(/ban 429, fraud\nremoved\n$/) })
    expect(await allowed('eve')).toBe(true)
    expect(await run(`overrides remove ${made.out.trim()} --yes`)).toMatchObject({ code: 2 })
  })

  test('bypass: created, listed, rotated and revoked; only the token goes to standard output', async () => {
    const { run } = await node()
    const create = await run('bypass create load --rule demo --expires-in 1d --limit-per-minute 60')
    expect(create).toMatchObject({ code: 0, out: expect.stringMatching(/^slb_[\w-]{43}\n$/) })
    const id = /byp_\w+/.exec(create.told)?.[0] ?? ''
    expect((await run('bypass list')).out).toMatch(/byp_\w+ +load +demo +60\/min +until \S+ +0 +never/)
    const rotated = await run(`bypass rotate ${id} --grace 1h --yes`)
    expect(rotated.out).toMatch(/^slb_/)
    expect(rotated.out).not.toBe(create.out)
    expect(await run(`bypass revoke ${id} --yes`)).toMatchObject({ code: 0, told: expect.stringMatching(/revoked\n$/) })
    expect((await run('bypass list')).out).toContain('revoked')
    expect(await run('bypass revoke byp_0 --yes')).toMatchObject({ code: 2 })
  })

  test('signals: sent with a warning if no rule reacts, listed, removed', async () => {
    const { run } = await node()
    const sent = await run('signals send user:eve --kind scraping --ttl 10m')
    expect(sent).toMatchObject({ code: 0, out: expect.stringMatching(ID) })
    expect(sent.told).toMatch(/^accepted, until .*\nwarning: kind: no enabled rule/)
    expect((await run('signals list --kind scraping')).out).toMatch(/user:eve +scraping +medium/)
    expect(await run(`signals remove ${sent.out.trim()} --yes`)).toMatchObject({ code: 0, told: 'removed\n' })
  })

  test('events tail shows the override, the bypass token and the signal of a decision', async () => {
    const { run, allowed } = await node()
    await run('overrides set user:eve --ban --expires-in 1h --reason fraud --yes')
    const { out: token } = await run('bypass create load --expires-in 1d --limit-per-minute 60')
    await run('signals send ip:203.0.113.42 --kind credential_stuffing --ttl 10m')
    await allowed('eve')
    await allowed('bob', { bypass_token: token.trim() })
    await allowed('cid', { endpoint: '/login', method: 'POST', ip_address: '203.0.113.42' })
    const { out } = await run('events tail --last 3 --count 3')
    expect(out).toMatch(/ refused +eve \/demo .*\[ovr_[0-9a-f]{24}\]$/m)
    expect(out).toMatch(/ allowed +bob \/demo .*\[byp_[0-9a-f]{24}\]$/m)
    expect(out).toMatch(/ allowed +cid POST \/login .*\[credential_stuffing\]$/m)
  })

  test('incident: factor and freeze, and back', async () => {
    const { run } = await node()
    expect((await run('incident status')).out).toBe('rule changes: allowed\nglobal factor: none\n')
    const factor = await run('incident factor 0.5 --expires-in 30m --reason overload --yes')
    expect(factor.out).toMatch(/global factor: 0.5 until \S+ by admin-token \(overload\)/)
    expect((await run('incident freeze --reason x --yes')).out).toMatch(/frozen since \S+ by admin-token \(x\)/)
    expect(await run('incident freeze --reason x --yes')).toMatchObject({ code: 5 })
    await run('incident factor off --yes')
    expect((await run('incident unfreeze --yes')).out).toBe('rule changes: allowed\nglobal factor: none\n')
    expect(await run('incident approve fac_018bcfe568a1b2c3d4e5f607')).toMatchObject({ code: 5 })
  })

  test.each([
    ['overrides set user:eve --ban --reason x --yes', 'give either --expires-in or --forever'],
    ['overrides set user:eve --ban --exempt --forever --reason x --yes', 'exactly one of'],
    ['overrides set user:eve --ban --forever --yes', '--reason: give the reason'],
    ['overrides set user:eve --factor 2 --status 403 --forever --reason x --yes', '--status: give it with --ban'],
    ['overrides set eve --ban --forever --reason x --yes', 'key: write the fact and its value'],
    ['overrides set user:eve --limit 0 --forever --reason x --yes', 'use --ban'],
    ['bypass create x --limit-per-minute 5', '--expires-in: give a lifetime'],
    ['signals send user:eve', '--kind: give a kind'],
    ['incident factor zero --expires-in 1m --reason x', '<factor>: give a number'],
    ['incident factor 2 --reason x', '--expires-in: give a duration'],
  ])('%s is refused with the fix', async (line, fix) => {
    const { run } = await node()
    expect(await run(line)).toMatchObject({ code: 2, out: '', told: expect.stringContaining(fix) })
  })

  test('all invalid arguments of an exception are reported together', async () => {
    const { told } = await sluice(['overrides', 'set', 'user:alice', '--limit', '3'])
    for (const mistake of ['give either --expires-in or --forever', '--reason: give the reason', 'pass --yes'])
      expect(told).toContain(mistake)
    const factor = await sluice(['incident', 'factor', 'zero'])
    for (const mistake of ['<factor>: give a number', '--expires-in: give a duration', '--reason: give', 'pass --yes'])
      expect(factor.told).toContain(mistake)
  })

  test('hostile texts do not reach the terminal', async () => {
    const { run } = await node()
    for (const line of ['overrides remove', 'bypass revoke', 'signals remove']) {
      const ended = await run(line, [HOSTILE, '--yes'])
      expect([ended.code, `${ended.out}${ended.told}`]).toEqual([2, expect.not.stringMatching(UNSAFE)])
    }
  })
})

test('without a database, the commands say so', async () => {
  const { address } = await serveFile('[]')
  const env = { SLUICE_URL: address, SLUICE_TOKEN: ADMIN_TOKEN }
  for (const line of ['overrides list', 'bypass list', 'signals list', 'incident status'])
    expect(await sluice(line.split(' '), { env })).toMatchObject({
      code: 5,
      told: expect.stringContaining('no database'),
    })
})
