import { randomUUID } from 'node:crypto'
import { describe, expect, test, vi } from 'vitest'
import { appendAudit } from '../../src/audit/audit.ts'
import type { Database } from '../../src/db/database.ts'
import { migrate } from '../../src/db/migrate.ts'
import { type DatabaseSettings, openDatabase } from '../../src/db/open-database.ts'
import { embeddedSink } from '../../src/events/embedded/embedded-sink.ts'
import { describeDatabases } from '../databases.ts'
import { batchOf, eventRow } from '../event-rows.ts'
import { ADMIN_TOKEN, BATCH, type Client, serveApp, serveFile, serveSettings } from '../service.ts'
import { sluice } from './terminal.ts'

const RULES = `
- { rule_id: demo, endpoint_pattern: /demo, scope: per_user, limit: 1, window: 1d }
- { rule_id: per_route, endpoint_pattern: /r/**, scope: [user, endpoint], limit: 1, window: 1d }
- { rule_id: everyone, endpoint_pattern: /all, scope: global, limit: 1, window: 1d }
- { rule_id: paused, limit: 1, window: 1d, enabled: false }
`
const PATIENTLY = { timeout: 10_000, interval: 50 }
const ISO = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`

/** Clears the screen, forges a row, hides text: nothing of it may reach a terminal. */
const HOSTILE = `a\u001b[2J\nforged row\u009b31m\u202e'"\u{1f6b0}`
const SHOWN = `a\\u001b[2J\\nforged row\\u009b31m\\u202e'"\u{1f6b0}`
const UNSAFE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u

function runOn({ address }: Client) {
  const env = { SLUICE_URL: address, SLUICE_TOKEN: ADMIN_TOKEN }
  return (args: readonly string[], answer?: boolean) => sluice(args, answer === undefined ? { env } : { env, answer })
}

/** A node without a database. */
async function node() {
  const client = await serveFile(RULES)
  const allowed = async (endpoint: string, client_id = 'ann') =>
    (await client.check({ client_id, endpoint, method: 'GET' })).allowed
  return { run: runOn(client), allowed }
}

describe('kill-switch', () => {
  test('disables and enables a rule after a confirmation', async () => {
    const { run, allowed } = await node()
    await allowed('/demo')
    expect(await run(['kill-switch', 'status'])).toEqual({ code: 0, out: '', told: 'no rules are disabled\n' })
    const disable = ['kill-switch', 'disable', 'demo', '--reason', 'too strict']
    expect(await run(disable)).toMatchObject({ code: 2, told: expect.stringContaining('pass --yes or --dry-run') })
    expect(await run(disable, false)).toMatchObject({ code: 3, told: expect.stringContaining('nothing was changed') })
    expect(await run([...disable, '--dry-run'])).toEqual({
      ...{ code: 0, out: '', told: '  demo   1/d   per_user   any /demo\nwould disable "demo"\n' },
    })
    expect(await allowed('/demo')).toBe(false)

    const disabled = await run(disable, true)
    expect(disabled).toMatchObject({ code: 0, told: expect.stringContaining('Disable this rule?') })
    expect(disabled.told).toContain('1 rule is disabled on this node only, until it stops\n')
    expect(disabled.out).toMatch(new RegExp(`^  demo +${ISO} +admin-token +too strict$`, 'm'))
    expect(await run(['kill-switch', 'status'])).toMatchObject({ code: 0, out: disabled.out })
    expect(await allowed('/demo')).toBe(true)

    const enabled = await run(['kill-switch', 'enable', 'demo', '--yes', '--json'])
    expect(JSON.parse(enabled.out)).toEqual({ everything: false, durable: false, kills: [] })
    expect(await allowed('/demo')).toBe(false)
  })

  test('--everything is separate from rules that are disabled one by one', async () => {
    const { run, allowed } = await node()
    await run(['kill-switch', 'disable', 'demo', '--yes'])
    await allowed('/all')
    const all = await run(['kill-switch', 'disable', '--everything', '--yes'])
    expect(all).toMatchObject({ code: 0, out: expect.stringMatching(/^ {2}\(all rules\) /m) })
    expect(all.told).toContain('all rules are disabled')
    expect(await allowed('/all')).toBe(true)
    const enabled = await run(['kill-switch', 'enable', '--everything', '--yes'])
    expect(enabled.out).toMatch(/^ {2}demo /m)
    expect(enabled.out).not.toContain('(all rules)')
    expect(await allowed('/all')).toBe(false)
    const again = await run(['kill-switch', 'enable', '--everything', '--yes'])
    expect(again).toMatchObject({ code: 0, told: expect.stringContaining('nothing was changed') })
  })

  test.each([
    [['disable'], 2, '<rule_id>: give either the id of a rule or --everything'],
    [['enable', 'demo', '--everything'], 2, '<rule_id>: give either the id of a rule or --everything'],
    [['disable', 'dmeo', '--yes'], 2, 'there is no rule "dmeo"; did you mean "demo"?'],
    [['enable', 'demo', '--yes'], 2, 'rule "demo" is not disabled'],
    [['disable', 'demo', '--yes', '--reason', 'a\nb'], 2, 'reason: give 1 to 1024 characters without control'],
    [['disable', 'demo', 'per_route'], 2, 'unexpected argument (got "per_route")'],
    [['disable', HOSTILE, '--yes'], 2, 'there is no rule "a\\u001b[2J\\nforged row\\u009b31m\\u202e'],
    [['disable', 'demo', '--yes', '--token', 'wrong'], 4, '401 UNAUTHORIZED'],
    [['of'], 2, 'unknown command "kill-switch of"'],
  ])('%j exits with %i', async (args, code, message) => {
    const { run } = await node()
    const ended = await run(['kill-switch', ...args])
    expect(ended).toMatchObject({ code, out: '', told: expect.stringContaining(message) })
    expect(ended.told).not.toMatch(UNSAFE)
  })
})

describe('reset', () => {
  test.each([
    ['a key', '/demo', ['demo', 'ann'], '"ann"'],
    ['the key of a global rule', '/all', ['everyone', ''], '""'],
    [
      'a composite key',
      '/r/x',
      ['per_route', '--fact', 'user=ann', '--fact', 'endpoint=GET /r/x'],
      'user "ann", endpoint "GET /r/x"',
    ],
  ])('%s starts afresh after a confirmation', async (_name, endpoint, args, shown) => {
    const { run, allowed } = await node()
    expect([await allowed(endpoint), await allowed(endpoint)]).toEqual([true, false])
    expect((await run(['reset', ...args])).code).toBe(2)
    expect((await run(['reset', ...args], false)).code).toBe(3)
    const dry = await run(['reset', ...args, '--dry-run'])
    expect(dry).toMatchObject({ code: 0, told: expect.stringContaining(`would reset the buckets of ${shown}\n`) })
    expect(await allowed(endpoint)).toBe(false)
    const reset = await run(['reset', ...args], true)
    expect(reset).toMatchObject({ code: 0, out: '', told: expect.stringMatching(/\nreset\n$/) })
    expect(reset.told).toContain(`Reset the buckets of ${shown}?`)
    expect([await allowed(endpoint), await allowed(endpoint)]).toEqual([true, false])
    expect(JSON.parse((await run(['reset', ...args, '--yes', '--json'])).out)).toEqual({ reset: true })
  })

  test.each([
    [['demo'], '<key>: give either a key or --fact, once per fact'],
    [['demo', 'ann', '--fact', 'user=ann'], '<key>: give either a key or --fact, once per fact'],
    [['demo', '--fact', '=ann'], '--fact: use the form name=value (got "=ann")'],
    [['demo', '--fact', 'user=a', '--fact', 'user=b'], '--fact: give each fact once (got "user" twice)'],
    [['per_route', HOSTILE], `<key>: give every fact of the key: user, endpoint (got "a\\u001b[2J\\nforged`],
    [['per_route', '--fact', 'user=ann', '--dry-run'], '<key>: give every fact of the key: user, endpoint (got user'],
    [['paused', 'ann', '--yes'], '<rule_id>: give the id of an active rule (got "paused")'],
    [['per_rote', 'ann'], 'there is no rule "per_rote"; did you mean "per_route"?'],
    [['demo', 'x'.repeat(1025), '--yes'], 'key: give a string of at most 1024 characters'],
  ])('%j is refused', async (args, message) => {
    const { run } = await node()
    const ended = await run(['reset', ...args])
    expect(ended).toMatchObject({ code: 2, out: '', told: expect.stringContaining(message) })
    expect(ended.told).not.toMatch(UNSAFE)
  })

  test('a key with the prefix of its fact gets a warning, also in a dry run', async () => {
    const { run } = await node()
    const warning = 'warning: <key>: give the value alone, without "user:", unless values start with it\n'
    for (const flag of ['--dry-run', '--yes'])
      expect((await run(['reset', 'demo', 'user:ann', flag])).told).toContain(warning)
    expect((await run(['reset', 'demo', 'ann', '--dry-run'])).told).not.toContain('warning')
  })

  test('a hostile key is reset, and shown escaped', async () => {
    const { run } = await node()
    const { code, told } = await run(['reset', 'demo', HOSTILE], true)
    expect(code).toBe(0)
    expect(told).not.toMatch(UNSAFE)
  })
})

describe('hot-keys', () => {
  test('lists the keys with the most checks', async () => {
    const app = await serveApp([{ rule_id: 'demo', scope: 'per_user', limit: 100, window_seconds: 60 }])
    const run = runOn(app)
    expect(await run(['hot-keys'])).toMatchObject({ code: 0, out: '', told: expect.stringMatching(/^no hot keys: /) })
    for (let batch = 0; batch < 12; batch += 1)
      await app.post(BATCH, { checks: Array.from({ length: 1000 }, () => ({ client_id: 'alice' })) })
    const { code, out } = await run(['hot-keys', '--limit', '5'])
    expect(code).toBe(0)
    expect(out).toMatch(
      /^ {2}RULE +LIMIT +KEY HASH +CHECKS\/S +SHARE\n {2}demo +default +[\da-f]{16} +\d+ +100\.0 %\n$/,
    )
    expect(JSON.parse((await run(['hot-keys', '--json'])).out)).toMatchObject({ hot_keys: [{ rule_id: 'demo' }] })
  })
})

test.each(['violations', 'audit list'])('%s on a node without a database exits with 5', async (command) => {
  const { run } = await node()
  const { code, told } = await run(command.split(' '))
  expect({ code, told }).toEqual({ code: 5, told: expect.stringContaining('409 NO_DATABASE: This node has no') })
})

test.each([
  [['violations', '--since', 'yesterday'], '--since: give a time such as 2030-01-31T12:00:00Z, or a whole number and'],
  [['violations', '--after', '7'], '--after: give the value that the previous page printed (got "7")'],
  [['violations', '--usr', 'ann'], '--usr: unknown flag; did you mean --user?'],
  [['audit', 'list', '--action', 'rule*'], '--action: give an action such as rule.update, or a group of actions'],
  [['audit', 'list', '--since', '1h', '--until', '2h'], '--until: give a time after --since (got "2h")'],
  [['audit', 'list', '--until', '5x'], '--until: give a time such as'],
  [['audit', 'list', '--limit', '1001'], '--limit: give a whole number from 1 to 1000 (got "1001")'],
  [['audit', 'list', '--after', 'x'], '--after: give the value that the previous page printed (got "x")'],
])('%j is an invalid argument', async (args, message) => {
  expect(await sluice(args)).toMatchObject({ code: 2, out: '', told: expect.stringContaining(message) })
})

describeDatabases('lists of a node', ({ empty }) => {
  const filled = async (fill: (database: Database) => Promise<unknown>): Promise<DatabaseSettings> => {
    const settings = empty()
    const database = await openDatabase(settings)
    await migrate(database)
    await fill(database)
    await database.close()
    return settings
  }
  const audit = (actor: string, action: string, minutes: number) => (database: Database) =>
    database.transaction((queries) => {
      const at = new Date(Date.parse('2030-01-31T12:00:00Z') + minutes * 60_000)
      return appendAudit(queries, { actor, action, target: actor, diff: { actor }, reason: actor }, at)
    })

  test('audit list is the same through a node and without one, filtered and page by page', async () => {
    const settings = await filled(async (database) => {
      await audit('ann', 'rule.create', 0)(database)
      await audit('ann', 'rule.update', 0)(database)
      await audit('bob', 'kill_switch.on', 1)(database)
    })
    const service = await serveSettings(settings)
    const run = runOn(service)
    const queries = [
      ['--actor', 'ann', '--limit', '1'],
      ['--actor', 'ann', '--limit', '1', '--after', '2'],
      ['--action', 'rule.*', '--json'],
      ['--target', 'bob', '--since', '2030-01-31T12:01:00Z', '--until', '2030-02-01'],
      ['--actor', 'somebody else'],
    ]
    const ofNode = []
    for (const query of queries) ofNode.push(await run(['audit', 'list', ...query]))
    const [first, second, json, , none] = ofNode
    expect(first).toEqual({
      code: 0,
      out: `  SEQ   AT                         ACTOR   ACTION        TARGET   REASON
  2     2030-01-31T12:00:00.000Z   ann     rule.update   ann      ann\n`,
      told: 'More: --after 2\n',
    })
    expect(second).toMatchObject({ told: '', out: expect.stringMatching(/^ {2}1 .* rule\.create /m) })
    expect(JSON.parse(json?.out ?? '')).toMatchObject({ entries: [{ seq: 2, diff: { actor: 'ann' } }, { seq: 1 }] })
    expect(none).toEqual({ code: 0, out: '', told: 'no audit entries found\n' })
    expect((await run(['audit', 'list', '--since', '15m'])).out, 'a duration').toMatch(/kill_switch\.on/)

    await service.close()
    const { database: url, dataDir } = settings
    const place = url === undefined ? ['--data-dir', dataDir] : ['--database', url]
    for (const [index, query] of queries.entries())
      expect(await sluice(['audit', 'list', ...query, ...place])).toEqual(ofNode[index])
  })

  test('hostile texts reach no terminal, and programs get them unchanged', async () => {
    const names = { bucket_key: HOSTILE, client_id: HOSTILE, ip: HOSTILE, endpoint: `/${HOSTILE}`, rule_id: HOSTILE }
    const refused = eventRow({ ...names, allowed: false })
    const events = [refused, eventRow({ ...refused, event_id: randomUUID(), endpoint: `/${'x'.repeat(500)}` })]
    const settings = await filled(async (database) => {
      await audit(HOSTILE, HOSTILE, 0)(database)
      await embeddedSink(database).write({ producer: 'test', seq: 1 }, batchOf({ events }), false)
    })
    const run = runOn(await serveSettings(settings))
    for (const [args, rows] of [
      [['audit', 'list', '--since', '2030-01-01', '--until', '2030-12-31'], 1],
      [['violations'], 2],
    ] as const) {
      const [table, json] = [await run(args), await run([...args, '--json'])]
      for (const { out, told } of [table, json]) expect(out + told).not.toMatch(UNSAFE)
      const lines = table.out.trimEnd().split('\n')
      expect(lines, 'no row is forged').toHaveLength(rows + 1)
      for (const line of lines) expect(line.length).toBeLessThan(400)
      expect(table.out).toContain(SHOWN.slice(0, 40))
      expect(Object.values(JSON.parse(json.out) as object).flat()[0]).toMatchObject(
        args[0] === 'violations' ? { user_id: HOSTILE } : { actor: HOSTILE, diff: { actor: HOSTILE } },
      )
    }
  })

  test('violations are listed by user, address, rule and time, page by page', async () => {
    const settings = await filled(async () => {})
    const service = await serveSettings(settings)
    const run = runOn(service)
    expect(await run(['violations'])).toEqual({ code: 0, out: '', told: 'no violations found\n' })
    const rule = { rule_id: 'ban', limit: 0, window_seconds: 60, scope: 'per_user', endpoint_pattern: '/ban' }
    await service.post('/api/v1/rate-limit/rules', rule, ADMIN_TOKEN)
    for (const client_id of ['ann', 'bob', 'ann'])
      await service.check({ client_id, ip_address: '192.0.2.1', endpoint: '/ban' })
    await vi.waitFor(async () => expect((await run(['violations'])).out.split('\n')).toHaveLength(5), PATIENTLY)
    const first = await run(['violations', '--user', 'ann', '--rule', 'ban', '--since', '1h', '--limit', '1'])
    expect(first.out).toMatch(new RegExp(`\n  ${ISO} +ban +ann +192\\.0\\.2\\.1 +/ban +0 +ban:default:user:\n$`))
    const [, after = ''] = /^More: --after (\S+)\n$/.exec(first.told) ?? []
    const second = await run(['violations', '--user', 'ann', '--limit', '1', '--after', after])
    expect(second).toMatchObject({ code: 0, told: '', out: expect.stringContaining(' ann ') })
    expect((await run(['violations', '--ip', '192.0.2.2'])).told).toBe('no violations found\n')
    expect(await run(['violations', '--ip', 'here'])).toMatchObject({ code: 2 })
  })
})
