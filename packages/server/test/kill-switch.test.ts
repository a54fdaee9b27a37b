import { describe, expect, test } from 'vitest'
import { KILL_SWITCH_PATH } from '../src/http/routes/kill-switch.ts'
import { ADMIN_TOKEN, type App, serveApp } from './service.ts'

const RULES = ['one', 'two'].map((rule_id) => ({
  rule_id,
  limit: 0,
  window_seconds: 60,
  endpoint_pattern: `/${rule_id}`,
}))

const turn = ({ post }: App, body: object) => post(KILL_SWITCH_PATH, body, ADMIN_TOKEN)
const passes = async ({ check }: App) =>
  [await check({ endpoint: '/one' }), await check({ endpoint: '/two' })].map(({ allowed }) => allowed)
const metric = async ({ get }: App, name: string) =>
  new RegExp(`^${name} (\\d+)$`, 'm').exec(String((await get('/metrics')).body.text))?.[1]

describe('the kill switch', () => {
  test('takes one rule out of force in one call, and brings it back in another', async () => {
    const app = await serveApp(RULES)
    expect(await passes(app)).toEqual([false, false])
    const { status, body } = await turn(app, { rule_id: 'one', on: true, reason: 'too strict' })
    expect(status).toBe(200)
    const since = new Date(app.clock.nowUs() / 1000).toISOString()
    const kill = { rule_id: 'one', since, by: 'admin-token', by_name: null, reason: 'too strict' }
    expect(body).toEqual({ everything: false, durable: false, kills: [kill] })
    expect((await app.get(KILL_SWITCH_PATH, ADMIN_TOKEN)).body).toEqual(body)
    expect(await passes(app)).toEqual([true, false])
    expect((await turn(app, { rule_id: 'one', on: false })).body).toEqual({
      ...{ everything: false, durable: false, kills: [] },
    })
    expect(await passes(app)).toEqual([false, false])
  })

  test('takes everything out of force; what was killed one by one stays so afterwards', async () => {
    const app = await serveApp(RULES)
    await turn(app, { rule_id: 'two', on: true })
    await turn(app, { everything: true, on: true })
    expect(await passes(app)).toEqual([true, true])
    await turn(app, { everything: true, on: false })
    expect(await passes(app)).toEqual([false, true])
  })

  test('shows in /readyz, the metrics and the log', async () => {
    const app = await serveApp(RULES)
    expect([await metric(app, 'sluice_killed_rules'), await metric(app, 'sluice_enforcement_off')]).toEqual(['0', '0'])
    await turn(app, { rule_id: 'one', on: true })
    expect(await app.get('/readyz')).toMatchObject({
      status: 200,
      body: { status: 'degraded', trouble: ['kill switch: not enforced: one'] },
    })
    await turn(app, { everything: true, on: true })
    expect((await app.get('/readyz')).body.trouble).toEqual(['kill switch: nothing is enforced'])
    expect([await metric(app, 'sluice_killed_rules'), await metric(app, 'sluice_enforcement_off')]).toEqual(['1', '1'])
    for (const target of [{ everything: true }, { rule_id: 'one' }]) await turn(app, { ...target, on: false })
    expect((await app.get('/readyz')).body).toMatchObject({ status: 'ready', trouble: [] })
    expect(app.logged.map(({ level, msg }) => `${level}: ${msg}`)).toEqual([
      'warn: kill switch: not enforced: one',
      'warn: kill switch: nothing is enforced',
      'warn: kill switch: not enforced: one',
      'warn: kill switch: all rules are in force again',
    ])
  })

  test.each([
    [{ on: true }, 'rule_id', 'give either rule_id or "everything": true'],
    [{ rule_id: 'one', everything: true, on: true }, 'rule_id', 'give either rule_id or "everything": true'],
    [{ rule_id: 'onne', on: true }, 'rule_id', 'give the id of a rule; did you mean "one"?'],
    [{ rule_id: 'one', on: false }, 'rule_id', 'give the id of a rule that is out of force'],
    [{ rule_id: 'one' }, 'on', 'use true or false'],
    [{ everything: false, on: true }, 'everything', 'leave it out, or use true'],
    [{ rule_id: 'one', on: true, reason: 'a\nb' }, 'reason', 'give 1 to 1024 characters without control characters'],
  ])('%j is a 400', async (body, field, fix) => {
    const { status, body: answer } = await turn(await serveApp(RULES), body)
    expect(status).toBe(400)
    expect(answer.errors).toMatchObject([{ field, fix }])
  })
})
