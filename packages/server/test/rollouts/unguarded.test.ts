// Every way to write a rule past the guard, and what happens to it: an edit that may refuse more is compared with the
// rules before it, or refused with the field, unless a person turns the guard off for this request.

import { describe, expect, test } from 'vitest'
import { ProblemError } from '../../src/problems/problem.ts'
import { databaseSource } from '../../src/rules/database-source.ts'
import { usePostgres } from '../databases.ts'
import { idOf, openedAt, perUser } from './edits.ts'

const postgres = usePostgres()
const opened = () => openedAt(postgres().createDatabase())

const POSTS = perUser(100)
const LOGIN = perUser(100, { intent: 'abuse' })
const LOCAL = perUser(100, { consistency: 'local' })
const SHARDED = perUser(100, { shards: 4 })
const SPREAD = perUser(100, { spread: 'global', consistency: 'leased' })
const PERMITS = { ...perUser(100, { algorithm: 'concurrency' }) }
const OTHERS = { other: perUser(5) }
const GROUP = { group: 'g' }

type Rules = Readonly<Record<string, object | null>>
/** base: the guard compares with this limit (null: no rule), `exempt` if it only alerts. */
type Outcome =
  | { readonly base: number | null; readonly exempt?: true }
  | { readonly refused: string }
  | { readonly off: string }

const CASES: readonly (readonly [title: string, before: Rules, edits: readonly Rules[], outcome: Outcome])[] = [
  ['a limit of 0', { posts: POSTS }, [{ posts: perUser(0) }], { base: 100 }],
  ['a defence', { posts: LOGIN }, [{ posts: { ...LOGIN, limit: 0 } }], { base: 100, exempt: true }],
  ['intent with the limit', { posts: POSTS }, [{ posts: { ...LOGIN, limit: 0 } }], { base: 100 }],
  ['intent just before', { posts: POSTS }, [{ posts: LOGIN }, { posts: { ...LOGIN, limit: 0 } }], { base: 100 }],
  ['intent removed', { posts: LOGIN }, [{ posts: perUser(0) }], { base: 100 }],
  ['consistency with the limit', { posts: POSTS }, [{ posts: { ...LOCAL, limit: 0 } }], { refused: 'consistency' }],
  ['consistency alone', { posts: POSTS }, [{ posts: LOCAL }], { refused: 'consistency' }],
  ['a local rule', { posts: LOCAL }, [{ posts: { ...LOCAL, limit: 0 } }], { refused: 'consistency' }],
  ['a looser local rule', { posts: LOCAL }, [{ posts: { ...LOCAL, limit: 200 } }], { off: 'a local rule' }],
  ['approximate', { posts: POSTS }, [{ posts: perUser(0, { consistency: 'approximate' }) }], { base: 100 }],
  ['shards with the limit', { posts: POSTS }, [{ posts: { ...SHARDED, limit: 4 } }], { refused: 'shards' }],
  ['no more shards', { posts: SHARDED }, [{ posts: perUser(0) }], { refused: 'shards' }],
  ['a looser sharded rule', { posts: SHARDED }, [{ posts: { ...SHARDED, limit: 400 } }], { off: 'shards' }],
  ['spread with the limit', { posts: POSTS }, [{ posts: { ...SPREAD, limit: 1 } }], { refused: 'spread' }],
  ['another algorithm', { posts: POSTS }, [{ posts: perUser(0, { algorithm: 'fixed_window' }) }], { base: 100 }],
  ['permits', { posts: POSTS }, [{ posts: { ...PERMITS, limit: 1 } }], { refused: 'algorithm' }],
  ['fewer permits', { posts: PERMITS }, [{ posts: { ...PERMITS, limit: 1 } }], { refused: 'algorithm' }],
  ['more permits', { posts: PERMITS }, [{ posts: { ...PERMITS, limit: 200 } }], { off: 'concurrency' }],
  ['a created rule', OTHERS, [{ posts: perUser(0) }], { base: null }],
  ['a created local rule', OTHERS, [{ posts: LOCAL }], { refused: 'consistency' }],
  ['the first rules', {}, [{ posts: LOCAL }], { off: 'a local rule' }],
  ['deleted and created', { posts: POSTS, ...OTHERS }, [{ posts: null }, { posts: perUser(0) }], { base: 100 }],
  ['a note', { posts: POSTS }, [{ posts: perUser(100, { description: 'x' }) }], { off: 'no decision' }],
  ['a note after it', { posts: POSTS }, [{ posts: perUser(0) }, { posts: perUser(0, { name: 'x' }) }], { base: 100 }],
  ['in two steps', { posts: POSTS }, [{ posts: perUser(1) }, { posts: perUser(0) }], { base: 100 }],
  [
    'disabled, tightened, enabled',
    { posts: POSTS },
    [{ posts: perUser(100, { enabled: false }) }, { posts: perUser(0, { enabled: false }) }, { posts: perUser(0) }],
    { base: 100 },
  ],
  ['enabled', { posts: perUser(0, { enabled: false }) }, [{ posts: perUser(0) }], { base: 0 }],
  ['enforced', { posts: perUser(0, { mode: 'shadow' }) }, [{ posts: perUser(0) }], { base: 0 }],
  ['other paths', { posts: perUser(0, { endpoint_pattern: '/x' }) }, [{ posts: perUser(0) }], { base: 0 }],
  ['other methods', { posts: perUser(0, { method: 'POST' }) }, [{ posts: perUser(0) }], { base: 0 }],
  ['other requests', { posts: perUser(0, { when: { a: ['b'] } }) }, [{ posts: perUser(0) }], { base: 0 }],
  ['a key of more facts', { posts: POSTS }, [{ posts: { ...perUser(0), scope: ['user', 'ip'] } }], { base: 100 }],
  ['another key', { posts: POSTS }, [{ posts: { ...perUser(0), scope: 'per_ip' } }], { refused: 'scope' }],
  [
    'requests without key',
    { posts: POSTS },
    [{ posts: perUser(100, { on_missing: 'refuse' }) }],
    { refused: 'on_missing' },
  ],
  [
    'a priority that displaces another rule',
    { posts: perUser(0, { ...GROUP, priority: 1 }), other: perUser(5, { ...GROUP, priority: 2 }) },
    [{ posts: perUser(0, { ...GROUP, priority: 3 }) }],
    { refused: 'priority' },
  ],
  [
    'a group that displaces another rule',
    { posts: perUser(0, { priority: 3 }), other: perUser(5, GROUP) },
    [{ posts: perUser(0, { ...GROUP, priority: 3 }) }],
    { refused: 'group' },
  ],
  [
    'a deleted rule that uncovers another one',
    { posts: perUser(500, { ...GROUP, priority: 2 }), other: perUser(0, GROUP) },
    [{ posts: null }],
    { refused: 'group' },
  ],
  [
    'a disabled rule that uncovers another one',
    { posts: perUser(500, { ...GROUP, priority: 2 }), other: perUser(0, GROUP) },
    [{ posts: perUser(500, { ...GROUP, priority: 2, enabled: false }) }],
    { refused: 'enabled' },
  ],
  [
    'the limit of a rule in a group',
    { posts: perUser(500, { ...GROUP, priority: 2 }), other: perUser(0, GROUP) },
    [{ posts: perUser(0, { ...GROUP, priority: 2 }) }],
    { base: 500 },
  ],
  [
    'a rule in a group for another plan',
    { posts: perUser(500, { ...GROUP, plan: 'pro' }), other: perUser(5, { ...GROUP, plan: 'free' }) },
    [{ posts: perUser(0, { ...GROUP, plan: 'pro', priority: 2 }) }],
    { base: 500 },
  ],
]

describe('an edit past the guard', () => {
  test.each(CASES)('%s', async (_, before, edits, outcome) => {
    const { edit, judged, rules, read } = await opened()
    if (Object.keys(before).length > 0) await edit(before, 0)
    for (const one of edits.slice(0, -1)) await edit(one)
    const unchanged = await rules()
    const last = edit(edits.at(-1) ?? {})
    if ('refused' in outcome) {
      const { problem } = (await last.catch((error: unknown) => error)) as ProblemError
      const field = `posts.${outcome.refused}`
      expect(problem).toMatchObject({ code: 'NOT_COMPARABLE', status: 409, errors: [{ field }] })
      expect(problem.detail).toContain('guard=off and a reason')
      expect(await rules()).toEqual(unchanged)
      return
    }
    const guard = await last
    if ('off' in outcome) return expect(guard).toEqual({ off: expect.stringContaining(outcome.off) })
    const [compared] = await judged()
    expect(compared).toMatchObject({ ruleId: 'posts', base: outcome.base === null ? null : { limit: outcome.base } })
    const { changes } = await read(compared?.id ?? '')
    expect(changes.some(({ defence }) => defence === true)).toBe(outcome.exempt === true)
  })

  test('of the examples of a new database is possible: its first rules may be of any kind', async () => {
    const { edit, database, store } = await opened()
    await databaseSource(database, 'a test').read(undefined, undefined)
    const examples = (await store.read()).rules.map(({ rule_id }) => [rule_id, null] as const)
    const guard = await edit({ ...Object.fromEntries(examples), posts: LOCAL, likes: perUser(5) })
    expect(guard).toMatchObject({ unguarded: expect.arrayContaining([{ rule_id: 'posts', why: expect.anything() }]) })
    await expect(edit({ posts: { ...LOCAL, limit: 5 } })).rejects.toThrow(ProblemError)
  })

  test('by --guard-edits 0 or by the request is possible, and the request is audited', async () => {
    const { edit, database } = await opened()
    await edit({ posts: POSTS }, 0)
    expect(await edit({ posts: perUser(90) }, 0)).toEqual({ off: '--guard-edits is 0' })
    const actions = async () => database.query("SELECT actor, reason, diff FROM audit WHERE action = 'rules.unguarded'")
    expect(await actions()).toEqual([])
    expect(await edit({ posts: { ...LOCAL, limit: 0 } }, 60_000, true)).toEqual({ off: 'the request turned it off' })
    const [entry] = (await actions()) as { diff: string }[]
    expect(entry).toMatchObject({ actor: 'ann', reason: 'x' })
    expect(JSON.parse(entry?.diff ?? '')).toEqual({ version: 3, rules: ['posts'] })
  })

  test('of more than 200 rules is refused if it may refuse more, and named', async () => {
    const { edit } = await opened()
    const many = (limit: number) => {
      return Object.fromEntries(Array.from({ length: 201 }, (_, index) => [`rule_${index}`, perUser(limit)]))
    }
    await edit({ posts: POSTS, ...many(100) }, 0)
    expect(await edit(many(200))).toEqual({ off: 'more than 200 rules changed' })
    const found = edit({ ...many(200), rule_7: perUser(0), ...{ posts: perUser(200) } })
    expect(idOf(await found)).not.toBe('') // two rules differ
    await expect(edit(many(10))).rejects.toThrow(ProblemError)
    await expect(edit(many(10))).rejects.toMatchObject({
      problem: { code: 'NOT_COMPARABLE', detail: expect.stringContaining('it changes 201 rules') },
    })
  })
})
