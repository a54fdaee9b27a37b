// Rollbacks of direct edits: exactly the edit that failed is undone, whatever else was edited before or after it.

import { type Random, seededRandom } from 'sluice/testing'
import { describe, expect, test } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { type EditGuard, followRollback } from '../../src/rollouts/edit-hooks.ts'
import { comparedChanges } from '../../src/rollouts/proposal.ts'
import { activeProposals, readProposal } from '../../src/rollouts/proposal-table.ts'
import { sameRule } from '../../src/rollouts/rebase.ts'
import { takeEvents, undoneFields } from '../../src/rollouts/rollout-events.ts'
import { parsedRule } from '../../src/rollouts/tightens.ts'
import type { PlainRule } from '../../src/rules/changes.ts'
import { compactRule } from '../../src/rules/compact-rule.ts'
import { usePostgres } from '../databases.ts'
import { idOf, openedAt, perUser } from './edits.ts'

const ADMIN = { id: 'admin-token', role: 'admin' } as const
const postgres = usePostgres()
const opened = () => openedAt(postgres().createDatabase())

describe('a rollback of a direct edit', () => {
  test('leaves the other rules of an earlier edit, which is still under guard', async () => {
    const { edit, end, rules } = await opened()
    await edit({ comments: perUser(100) }, 0)
    await edit({ comments: perUser(200), payments: perUser(500), one: perUser(5), two: perUser(5) })
    const failed = await edit({ payments: perUser(0) })
    const { sentence } = (await end(failed)) ?? {}
    expect(sentence).toBe('rolled back by the guard: rule payments: 60 % newly denied; reverted payments.limit')
    const limits = Object.fromEntries([...(await rules())].map(([id, { limit }]) => [id, limit]))
    expect(limits).toEqual({ comments: 200, payments: 500, one: 5, two: 5 })
  })

  test('names every field that it reverted and every one that it did not: reason, audit, event, version', async () => {
    const { database, edit, end, rules, store } = await opened()
    await edit({ posts: perUser(100, { burst: 100 }), likes: perUser(50) }, 0)
    const failed = await edit({ posts: perUser(0, { burst: 5, priority: 3 }), likes: null, reads: perUser(1) })
    await edit({ posts: perUser(10, { burst: 5, priority: 3 }), reads: perUser(2) })
    const undone = await end(failed)
    expect([...(await rules()).values()].map(compacted)).toEqual([
      { rule_id: 'likes', ...perUser(50) },
      { rule_id: 'posts', ...perUser(10, { burst: 100 }) },
      { rule_id: 'reads', ...perUser(2) },
    ])
    const named = {
      reverted: [
        { rule_id: 'likes', field: 'rule' },
        { rule_id: 'posts', field: 'burst' },
        { rule_id: 'posts', field: 'priority' },
      ],
      not_reverted: [
        { rule_id: 'posts', field: 'limit', why: 'changed again by version 3' },
        { rule_id: 'reads', field: 'rule', why: 'the rule was changed again by version 3' },
      ],
    }
    const { reverted = [], not_reverted } = undoneFields(undone?.changes ?? [])
    expect({ reverted: sorted(reverted), not_reverted }).toEqual(named)
    const reason =
      'rule payments: 60 % newly denied; reverted likes.rule, posts.burst, posts.priority; not reverted: ' +
      'posts.limit (changed again by version 3), reads.rule (the rule was changed again by version 3)'
    expect(undone?.sentence).toBe(`rolled back by the guard: ${reason}`)
    const [entry] = await database.query<{ reason: string; diff: string }>(
      "SELECT reason, diff FROM audit WHERE action = 'proposal.roll_back'",
    )
    expect(entry?.reason).toBe(reason)
    expect(JSON.parse(entry?.diff ?? '')).toMatchObject(named)
    const event = (await takeEvents(database)).find(({ type }) => type === 'rollout.rolled_back')
    expect(event?.data).toMatchObject(named)
    expect((await store.versions(1, 1000))[0]?.reason).toBe(reason)
  })

  test('restores a limit and its window together, or neither: no rate that no one wrote', async () => {
    const { edit, end, rules } = await opened()
    await edit({ posts: perUser(100) }, 0)
    const failed = await edit({ posts: { ...perUser(5), window_seconds: 1, burst: 7 } })
    await edit({ posts: { ...perUser(6), window_seconds: 1, burst: 7 } })
    expect((await end(failed))?.sentence).toContain(
      'reverted posts.burst; not reverted: posts.limit (changed again by version 3), ' +
        'posts.window_seconds (belongs to limit, which was changed again by version 3)',
    )
    expect((await rules()).get('posts')).toMatchObject({ limit: 6, window_seconds: 1 })
    expect((await rules()).get('posts')).not.toHaveProperty('burst')
  })

  test('writes nothing if the rest would be no valid rule, and says so', async () => {
    const { edit, end, rules } = await opened()
    await edit({ posts: perUser(100, { consistency: 'approximate' }) }, 0)
    const failed = await edit({ posts: perUser(50) })
    await edit({ posts: perUser(50, { lease: { max_units: 3 } }) })
    const { sentence } = (await end(failed)) ?? {}
    expect(sentence).toContain('posts.consistency (without it the rule would be invalid: lease: remove it')
    expect(sentence).not.toContain('; reverted')
    expect((await rules()).get('posts')).toMatchObject({ limit: 50, lease: { max_units: 3 } })
  })
})

describe('edits of one rule under guard', () => {
  test('are judged one at a time, newest first, each against the rule without it', async () => {
    const { edit, end, judged, read } = await opened()
    await edit({ posts: perUser(100) }, 0)
    const first = await edit({ posts: perUser(50) })
    const second = await edit({ posts: perUser(50, { priority: 2 }) })
    expect(await judged()).toMatchObject([{ id: idOf(second), base: { limit: 50 }, rule: { limit: 50, priority: 2 } }])
    expect((await judged())[0]?.base).not.toHaveProperty('priority')
    expect((await read(idOf(first))).changes).toMatchObject([{ judged: 'later' }])
    await end(second, 'advance')
    expect(await judged()).toMatchObject([
      { id: idOf(first), base: { limit: 100, priority: 2 }, rule: { limit: 50, priority: 2 } },
    ])
    expect((await read(idOf(first))).attempt).toBe(2) // its buckets for the comparison have missed requests
  })

  test('an edit does not escape judgement by a second one: a note, a looser value, another field', async () => {
    for (const [limit, more] of [
      [0, { description: 'trivial' }],
      [1, {}],
      [0, { burst: 500 }],
    ] as const) {
      const { edit, judged } = await opened()
      await edit({ posts: perUser(100) }, 0)
      await edit({ posts: perUser(0) })
      await edit({ posts: perUser(limit, more) })
      expect(await judged()).toMatchObject([{ base: { limit: 100 }, rule: { limit } }])
    }
  })

  test('a typing error, corrected to a value that also fails: both are undone, one after the other', async () => {
    const { edit, end, judged, rules } = await opened()
    await edit({ posts: perUser(100) }, 0)
    const error = await edit({ posts: perUser(0) })
    const corrected = await edit({ posts: perUser(20) })
    expect(await judged()).toMatchObject([{ id: idOf(corrected), base: { limit: 100 }, rule: { limit: 20 } }])
    await end(corrected)
    expect(await judged()).toMatchObject([{ id: idOf(error), base: { limit: 100 }, rule: { limit: 0 } }])
    await end(error)
    expect((await rules()).get('posts')).toMatchObject({ limit: 100 })
  })

  test('an edit ends when others that passed have changed each of its fields again, not before', async () => {
    const { edit, end, read } = await opened()
    await edit({ posts: perUser(100) }, 0)
    const first = await edit({ posts: perUser(50) })
    const second = await edit({ posts: perUser(40) })
    expect((await read(idOf(first))).state.name).toBe('rolling_out')
    await end(second, 'advance')
    expect(await read(idOf(first))).toMatchObject({
      state: { name: 'done' },
      sentence: 'superseded by the guard: later edits changed each of its fields again',
    })
  })

  test('a rule that an edit deleted and another created again is compared with the deleted one', async () => {
    const { edit, judged } = await opened()
    await edit({ posts: perUser(100) }, 0)
    await edit({ posts: null })
    await edit({ posts: perUser(1) })
    expect(await judged()).toMatchObject([{ base: { limit: 100 }, rule: { limit: 1 } }])
  })

  test('are bounded: one too many is refused, with the fix', async () => {
    const { edit } = await opened()
    await edit({ posts: perUser(200) }, 0)
    for (let limit = 199; limit > 99; limit -= 1) await edit({ posts: perUser(limit) })
    await expect(edit({ posts: perUser(99) })).rejects.toMatchObject({
      problem: { code: 'TOO_MANY_PROPOSALS', detail: expect.stringContaining('guard=off') },
    })
    await edit({ posts: perUser(99) }, 0)
  })
})

const compacted = (rule: PlainRule) => compactRule(parsedRule(rule) as never)

function sorted<One extends { readonly rule_id: string; readonly field: string }>(fields: readonly One[]): One[] {
  const key = ({ rule_id, field }: One) => `${rule_id} ${field}`
  return [...fields].sort((one, other) => (key(one) < key(other) ? -1 : 1))
}

/** A rule as values by path; absent: the rule does not exist. */
type Model = Readonly<Record<string, unknown>>
/** null deletes the rule. `isNew`: the edit creates it, with exactly these fields. */
type Patch = { readonly isNew: boolean; readonly set: Model } | null
type ModelEdit = {
  readonly patches: Readonly<Record<string, Patch>>
  guard: EditGuard
  /** Rules for which it was undone. */
  readonly undone: Set<string>
}

const RULES = ['a', 'b', 'c'] as const
const FIELDS: Readonly<Record<string, readonly unknown[]>> = {
  limit: [1, 10, 100],
  burst: [undefined, 5, 50],
  priority: [undefined, 1, 2],
  description: [undefined, 'one', 'two'],
  'when.country': [undefined, ['de'], ['fr', 'it']],
  'when.tier': [undefined, ['free']],
  'lease.max_units': [undefined, 3, 9],
  'lease.ttl_ms': [undefined, 100, 200],
  'by_plan.pro': [undefined, [{ name: 'default', limit: 7, window_seconds: 60 }]],
  'by_plan.team': [undefined, { limit: 8 }, [{ name: 'a', limit: 8, window_seconds: 60 }], 'unlimited'],
  'by_plan.free': [undefined, { limit: 3 }, 'unlimited'],
}

function ruleOf(model: Model): object {
  const rule: Record<string, unknown> = { scope: 'per_user', window_seconds: 60 }
  for (const [path, value] of Object.entries(model)) {
    const [name = '', inner] = path.split('.')
    if (value === undefined) continue
    if (inner === undefined) rule[name] = value
    else rule[name] = { ...(rule[name] as object | undefined), [inner]: value }
  }
  return rule
}

/** All edits but the failed ones, in their order, later ones last. */
function modelOf(edits: readonly ModelEdit[], ruleId: string): Model | undefined {
  let model: Model | undefined
  for (const { patches, undone } of edits) {
    const patch = patches[ruleId]
    if (patch === undefined || undone.has(ruleId)) continue
    if (patch === null) model = undefined
    else if (patch.isNew || model !== undefined) model = { ...(patch.isNew ? {} : model), ...patch.set }
  }
  return model
}

/** A created rule that was edited since stays. */
function fail(edit: ModelEdit, edits: readonly ModelEdit[]): void {
  const [earlier, later] = [edits.slice(0, edits.indexOf(edit)), edits.slice(edits.indexOf(edit) + 1)]
  for (const id of Object.keys(edit.patches)) {
    const isTouched = later.some(({ patches, undone }) => patches[id] !== undefined && !undone.has(id))
    const isCreated = edit.patches[id] !== null && modelOf(earlier, id) === undefined
    if (!(isCreated && isTouched)) edit.undone.add(id)
  }
}

function randomPatch(random: Random, present: Model | undefined): Patch {
  if (present !== undefined && random.next() < 0.1) return null
  const isNew = present === undefined
  const set: Record<string, unknown> = isNew ? { limit: random.pick([1, 10, 100]) } : {}
  for (let fields = random.between(1, 3); fields > 0; fields -= 1) {
    const [path, values] = random.pick(Object.entries(FIELDS))
    const others = values.filter((value) => JSON.stringify(value) !== JSON.stringify(present?.[path]))
    set[path] = random.pick(others)
  }
  if (set.limit === undefined && isNew) set.limit = 10
  return { isNew, set }
}

test.each([1, 2, 3, 4, 5, 6])(
  'after each rollback, the rules are those of all other edits, and only a created rule is removed (seed %i)',
  async (seed) => {
    const random = seededRandom(seed)
    const { database, proposals, edit, end, read, rules } = await opened()
    const edits: ModelEdit[] = []
    let rollbacks = 0
    const matches = async () => {
      const present = await rules()
      for (const id of RULES) {
        const model = modelOf(edits, id)
        const expected = model === undefined ? null : compacted({ ...ruleOf(model), rule_id: id })
        const found = present.get(id) ?? null
        expect(sameRule(found, expected), `${seed} ${id}: ${JSON.stringify([found, expected])}`).toBe(true)
      }
    }
    for (let round = 0; round < 60; round += 1) {
      const open: ModelEdit[] = []
      for (const one of edits) if (await isOpen(database, one.guard)) open.push(one)
      if (open.length > 0 && random.next() < 0.45) {
        const one = random.pick(open)
        const before = new Set((await rules()).keys())
        const kind = random.pick(['revert', 'abort', 'advance'] as const)
        if (kind !== 'advance') fail(one, edits)
        const moved =
          kind === 'abort' ? await proposals.abort(idOf(one.guard), ADMIN, undefined) : await end(one.guard, kind)
        expect(moved?.state.name).toBe(kind === 'advance' ? 'done' : 'rolled_back')
        await matches()
        if (kind === 'advance') continue
        rollbacks += 1
        const present = await rules()
        for (const id of before) if (!present.has(id)) expect(one.patches[id]).toMatchObject({ isNew: true })
        const { changes } = await read(idOf(one.guard))
        for (const { ruleId, undone } of changes) expect([ruleId, undone]).not.toContain(undefined)
      } else {
        const patches: Record<string, Patch> = {}
        for (const id of RULES) {
          if (random.next() < 0.6) continue
          patches[id] = randomPatch(random, modelOf(edits, id))
        }
        const one: ModelEdit = { patches, guard: { off: '' }, undone: new Set() }
        edits.push(one)
        const next = Object.keys(patches).map((id): [string, object | null] => {
          const model = modelOf(edits, id)
          return [id, model === undefined ? null : ruleOf(model)]
        })
        one.guard = await edit(Object.fromEntries(next), random.next() < 0.2 ? 0 : 60_000)
        await matches()
      }
      await heldOnce(database)
    }
    expect(rollbacks).toBeGreaterThan(3)
  },
)

async function isOpen(database: Database, guard: EditGuard): Promise<boolean> {
  return (await readProposal(database, idOf(guard)))?.state.name === 'rolling_out'
}

/** Each rule that is compared is held by the proposal that compares it, and no other rule is held. */
async function heldOnce(database: Database): Promise<void> {
  const compared = (await activeProposals(database)).flatMap((one) =>
    comparedChanges(one).map(({ ruleId }) => `${ruleId} ${one.id}`),
  )
  const held = await database.query<{ one: string }>("SELECT rule_id || ' ' || proposal_id AS one FROM rollouts")
  expect(held.map(({ one }) => one).sort()).toEqual(compared.sort())
}

test('a rollback of the rules by a person ends the guard of the rules that it changes, not of others', async () => {
  const { edit, judged, rules, store } = await opened()
  await edit({ posts: perUser(100), likes: perUser(100) }, 0)
  const guard = await edit({ posts: perUser(50), likes: perUser(50) })
  const next = async () => [parsedRule({ rule_id: 'posts', ...perUser(100) })].filter((rule) => rule !== null)
  const author = { actor: 'ben', reason: undefined }
  const options = { guardMs: 60_000, isOff: false, onGuard: () => {} }
  await store.edit(
    { action: 'rules.rollback', ruleId: 'posts', next },
    { author, path: { rollbackTo: 1 }, applied: (queries, applied) => followRollback(queries, applied, options) },
  )
  expect(await judged()).toMatchObject([{ id: idOf(guard), ruleId: 'likes' }])
  expect((await rules()).get('likes')).toMatchObject({ limit: 50 })
})
