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
  test('disables one rule with one call, and enables it with another', async () => {
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

  test('disables everything; rules disabled one by one stay disabled afterwards', async () => {
    const app = await serveApp(RULES)
    await turn(app, { rule_id: 'two', on: true })
    await turn(app, { everything: true, on: true })
    expect(await passes(app)).toEqual([true, true])
    await turn(app, { everything: true, on: false })
    expect(await passes(app)).toEqual([false, true])
  })

  test('shows in /readyz, the metrics and the log', async () => {
    const app = await serveApp(RULES)
    expect([await metric(app, 'sluice_disabled_rules'), await metric(app, 'sluice_enforcement_disabled')]).toEqual([
      '0',
      '0',
    ])
    await turn(app, { rule_id: 'one', on: true })
    expect(await app.get('/readyz')).toMatchObject({
      status: 200,
      body: { status: 'degraded', reasons: ['kill switch: disabled: one'] },
    })
    await turn(app, { everything: true, on: true })
    expect((await app.get('/readyz')).body.reasons).toEqual(['kill switch: all rules are disabled'])
    expect([await metric(app, 'sluice_disabled_rules'), await metric(app, 'sluice_enforcement_disabled')]).toEqual([
      '1',
      '1',
    ])
    for (const target of [{ everything: true }, { rule_id: 'one' }]) await turn(app, { ...target, on: false })
    expect((await app.get('/readyz')).body).toMatchObject({ status: 'ready', reasons: [] })
    expect(app.logged).toMatchObject(
      [['one'], 'all', ['one'], []].map((disabled) => ({ event: 'kill_switch_changed', disabled })),
    )
  })

  test.each([
    [{ on: true }, 'rule_id', 'give either rule_id or "everything": true'],
    [{ rule_id: 'one', everything: true, on: true }, 'rule_id', 'give either rule_id or "everything": true'],
    [{ rule_id: 'onne', on: true }, 'rule_id', 'give the id of a rule; did you mean "one"?'],
    [{ rule_id: 'one', on: false }, 'rule_id', 'give the id of a disabled rule'],
    [{ rule_id: 'one' }, 'on', 'use true or false'],
    [{ everything: false, on: true }, 'everything', 'omit it, or use true'],
    [
      { rule_id: 'one', on: true, reason: 'a\nb' },
      'reason',
      'give 1 to 1024 characters without control characters and direction overrides',
    ],
  ])('%j is a 400', async (body, field, fix) => {
    const { status, body: answer } = await turn(await serveApp(RULES), body)
    expect(status).toBe(400)
    expect(answer.errors).toMatchObject([{ field, fix }])
  })
})
