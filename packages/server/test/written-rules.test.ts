// Fields that the author of a rule wrote stay written on every way through the service, also where they equal a default
// that depends on another field. A default that was not written follows that field.

import { createLimiter, parseRules, type Rule, type RulesInput, writtenRule } from 'sluice'
import { describe, expect, onTestFinished, test } from 'vitest'
import { parse as parseYaml } from 'yaml'
import { openDatabase } from '../src/db/open-database.ts'
import { rebase } from '../src/rollouts/rebase.ts'
import type { PlainRule } from '../src/rules/changes.ts'
import { compactRule } from '../src/rules/compact-rule.ts'
import { mergePatch } from '../src/rules/merge-patch.ts'
import { RuleSnapshot } from '../src/rules/snapshot.ts'
import { rulesYaml } from '../src/rules/yaml-writer.ts'
import { temporaryFolder, usePostgres } from './databases.ts'
import { ADMIN_TOKEN, RULES, serveDatabase } from './service.ts'

type Fields = Readonly<Record<string, unknown>>

/** A field whose default depends on another: its default, the other field, and values that change the default. */
type Dependent = {
  readonly field: string
  readonly explicit: Fields
  readonly other: string
  readonly there: unknown
  readonly back: unknown
  readonly base?: Fields
  /** Value without `explicit`, while the other field is `there`. */
  readonly follows: unknown
}

const BASE = { rule_id: 'r', scope: 'per_user', limit: 100, window_seconds: 60 }
const plan = (fields: Fields) => ({ by_plan: { pro: fields } })

const DEPENDENT: readonly Dependent[] = [
  ...(['open', 'closed'] as const).map((value): Dependent => {
    const [back, there] = value === 'open' ? ['fairness', 'abuse'] : ['abuse', 'fairness']
    const follows = value === 'open' ? 'closed' : 'open'
    return { field: 'on_fail', explicit: { on_fail: value }, other: 'intent', there, back, follows }
  }),
  {
    ...{ field: 'consistency', explicit: { consistency: 'strict' }, other: 'algorithm' },
    ...{ there: 'token_bucket', back: 'leaky_bucket', follows: 'leased' },
  },
  ...['token_bucket', 'leaky_bucket'].map((algorithm): Dependent => {
    const base = { algorithm }
    return { field: 'burst', explicit: { burst: 100 }, other: 'limit', there: 50, back: 100, base, follows: undefined }
  }),
  ...(
    [
      ['limit', 100, 50],
      ['window_seconds', 60, 30],
      ['burst', 40, 20],
    ] as const
  ).map(([name, value, there]): Dependent => {
    const [rest, base] = name === 'burst' ? [{ limit: 500 }, { burst: 40 }] : [{ burst: 7 }, {}]
    const explicit = plan({ ...(name === 'burst' ? {} : rest), [name]: value })
    return { field: `by_plan.pro.${name}`, explicit, other: name, there, back: value, base, follows: there }
  }),
]

const only = (fields: Fields): Rule => parseRules([fields])[0] as Rule

function fieldOf(rule: Rule, field: string): unknown {
  const [name = '', planName, inner = ''] = field.split('.')
  if (planName !== undefined) return (rule.by_plan[planName]?.[0] as Fields | undefined)?.[inner]
  if (name === 'burst') return rule.limits[0]?.burst
  return (rule as Fields)[name]
}

/** Ways on which a rule is written again. Each returns the rule that is stored, and must change no written field. */
const WAYS: Readonly<Record<string, (stored: PlainRule, patch: Fields) => PlainRule | Promise<PlainRule>>> = {
  PATCH: (stored, patch) => compactRule(only(mergePatch(stored, patch) as Fields)),
  PUT: (stored, patch) => compactRule(only({ ...stored, ...patch })),
  'export and import': async (stored, patch) => {
    const changed = compactRule(only({ ...stored, ...patch }))
    const { rules } = parseYaml(await rulesYaml([changed])) as { rules: Fields[] }
    return compactRule(only(rules[0] ?? {}))
  },
  'proposal, moved to another base': (stored, patch) => {
    const rule = compactRule(only(mergePatch(stored, patch) as Fields))
    const moved = { ...stored, description: 'moved' }
    const change = { op: 'update' as const, ruleId: 'r', base: stored, rule }
    const rebased = rebase([change], new Map([['r', moved]]))
    expect(rebased.conflicts).toEqual([])
    return compactRule(only(rebased.changes[0]?.rule as Fields))
  },
}

describe.each(Object.keys(WAYS))('written by %s', (way) => {
  const write = WAYS[way] as (typeof WAYS)[string]

  test.each(DEPENDENT)('$field stays as written while $other is $there and back $back', async (dependent) => {
    const { field, explicit, other, there, back, base = {} } = dependent
    const created = compactRule(only({ ...BASE, ...base, [other]: back, ...explicit }))
    const value = fieldOf(only(created), field)
    expect(value).not.toBe(undefined)
    const changed = await write(created, { [other]: there })
    expect(fieldOf(only(changed), field)).toEqual(value)
    const restored = await write(changed, { [other]: back })
    expect(fieldOf(only(restored), field)).toEqual(value)
    expect({ ...restored, description: undefined }).toEqual({ ...created, description: undefined })
  })

  test.each(DEPENDENT)(
    '$field follows $other if it was not written',
    async ({ field, other, there, back, ...rest }) => {
      const { base = {}, follows } = rest
      const byPlan = field.startsWith('by_plan')
        ? plan(
            field.endsWith('limit')
              ? { window_seconds: 5 }
              : field.endsWith('burst')
                ? { window_seconds: 5 }
                : { limit: 9 },
          )
        : {}
      const created = compactRule(only({ ...BASE, ...base, [other]: back, ...byPlan }))
      const changed = await write(created, { [other]: there })
      expect(fieldOf(only(changed), field)).toEqual(follows)
    },
  )
})

test('the written form has canonical names and values, and no default that was not written', () => {
  const rule = only({
    ...{ id: 'r', rate: 100, per: 'minute', capacity: 100, on_fail: 'fail_open', method: ['get'], is_active: true },
    ...{ by_plan: { pro: { limit: 500, window: '1m' }, all: 'unlimited' }, key_pattern: 'user:{user_id}' },
  })
  expect(writtenRule(rule)).toEqual({
    ...{ rule_id: 'r', limit: 100, window_seconds: 60, burst: 100, on_fail: 'open', method: 'GET', enabled: true },
    ...{ by_plan: { pro: { limit: 500, window_seconds: 60 }, all: 'unlimited' }, scope: 'per_user' },
  })
  expect(parseRules([writtenRule(rule)])).toEqual([rule])
  const unlimited = only({ rule_id: 'r', limit: 'unlimited', window: '1m', by_plan: { free: { limit: 5 } } })
  expect(parseRules([writtenRule(unlimited)])).toEqual([unlimited])
})

test('rules of a file, of etcd and of a snapshot stay as written in the limiter of a node', async () => {
  const written = { rule_id: 'r', limit: 5, window_seconds: 60, on_fail: 'open', by_plan: { pro: { limit: 9 } } }
  const limiter = createLimiter({ rules: [written], version: 1 })
  onTestFinished(() => limiter.close())
  expect(limiter.rules.map(compactRule)).toEqual([written])
  const folder = temporaryFolder()
  const snapshot = new RuleSnapshot(folder, 'a test')
  await snapshot.write(2, limiter.rules)
  const { rules } = (await snapshot.read()) ?? { rules: [] }
  const prepared = await limiter.prepareRules(rules as RulesInput, 2)
  prepared.enforce()
  expect(limiter.rules.map(compactRule)).toEqual([written])
})

describe('through the API', () => {
  const postgres = usePostgres()

  test('fail-closed stays fail-closed, in the rule, the export, the versions and the difference', async () => {
    const database = await openDatabase({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
    onTestFinished(() => database.close())
    const app = await serveDatabase(database)
    const send = async (method: string, path: string, body?: object) => {
      const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
      return (await app.send(path, { method, headers, ...(body && { body: JSON.stringify(body) }) })).body
    }
    const written = { rule_id: 'r', limit: 5, window_seconds: 60, on_fail: 'closed' }
    expect(await send('POST', RULES, written)).toMatchObject({ on_fail: 'closed' })
    expect(await send('PATCH', `${RULES}/r`, { intent: 'abuse' })).toMatchObject({ on_fail: 'closed' })
    expect(await send('PATCH', `${RULES}/r`, { intent: 'fairness' })).toMatchObject({ on_fail: 'closed' })
    const explicit = { ...written, intent: 'fairness' }
    expect(await send('GET', `${RULES}/r?form=written`)).toEqual(explicit)
    expect(await send('POST', `${RULES}/validate`, explicit)).toMatchObject({ compact: explicit })
    const set = '/api/v1/rate-limit/rule-set'
    expect((await send('GET', `${set}?format=json`)).rules).toContainEqual(explicit)
    const { changes } = await send('PUT', set, { rules: [{ ...explicit, limit: 6 }] })
    expect(changes).toContainEqual({ rule_id: 'r', change: 'updated', before: { limit: 5 }, after: { limit: 6 } })
    expect(await send('PATCH', `${RULES}/r`, { on_fail: null })).toMatchObject({ on_fail: 'open' })
    expect(await send('PATCH', `${RULES}/r`, { intent: 'abuse' })).toMatchObject({ on_fail: 'closed' })
  })

  test.each(DEPENDENT)('$field is stored when it is written as its default, and stays', async (dependent) => {
    const { field, explicit, other, there, back, base = {} } = dependent
    const database = await openDatabase({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
    onTestFinished(() => database.close())
    const app = await serveDatabase(database)
    const send = async (method: string, path: string, body?: object) => {
      const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
      const { headers: answered, body: read } = await app.send(path, {
        ...{ method, headers },
        ...(body && { body: JSON.stringify(body) }),
      })
      return { etag: answered.get('etag'), rule: read }
    }
    const [name = ''] = field.split('.')
    for (const method of ['PATCH', 'PUT']) {
      const rule_id = method.toLowerCase()
      const rule = { ...BASE, ...base, rule_id, [other]: back }
      const created = await send('POST', RULES, rule)
      const body = method === 'PUT' ? { ...rule, ...explicit } : explicit
      const written = await send(method, `${RULES}/${rule_id}`, body)
      expect(written.etag).not.toBe(created.etag)
      const stored = await send('GET', `${RULES}/${rule_id}?form=written`)
      expect(stored.rule[name]).toEqual(explicit[name])
      expect((await send(method, `${RULES}/${rule_id}`, body)).etag).toBe(written.etag)
      await send('PATCH', `${RULES}/${rule_id}`, { [other]: there })
      const changed = (await send('GET', `${RULES}/${rule_id}?form=written`)).rule
      expect(fieldOf(only(changed), field)).toEqual(fieldOf(only({ ...rule, ...explicit }), field))
    }
  })
})
