import { type Random, seededRandom } from 'sluice/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import { setApprovals } from '../../src/approvals/required-approvals.ts'
import { verifyAudit } from '../../src/audit/audit.ts'
import type { Database, Queries } from '../../src/db/database.ts'
import { migrate } from '../../src/db/migrate.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { ProblemError } from '../../src/problems/problem.ts'
import { editHooks, rollbackHooks } from '../../src/rollouts/edit-hooks.ts'
import { GUARD_DEFAULTS } from '../../src/rollouts/guard-settings.ts'
import type { Proposal } from '../../src/rollouts/proposal.ts'
import { ProposalStore } from '../../src/rollouts/proposal-store.ts'
import { activeProposals } from '../../src/rollouts/proposal-table.ts'
import { type Event, STATE_NAMES, type State, type StateName, transition } from '../../src/rollouts/state.ts'
import { parsedRule } from '../../src/rollouts/tightens.ts'
import { RuleStore } from '../../src/rules/rule-store.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'

/** Written down independently of the code: state → states that may follow, for staged changes and for direct edits. */
const LEGAL: Readonly<Record<StateName, readonly StateName[]>> = {
  draft: ['draft', 'approved', 'rejected', 'cancelled'],
  approved: ['approved', 'draft', 'rolling_out', 'rejected', 'cancelled'],
  rolling_out: ['rolling_out', 'done', 'rolled_back'],
  done: [],
  rejected: [],
  cancelled: ['draft', 'rolling_out'],
  rolled_back: ['draft', 'rolling_out'],
}

const STATES: readonly State[] = [
  ...STATE_NAMES.filter((name) => name !== 'rolling_out').map((name) => ({ name }) as State),
  ...[0, 1, 2].flatMap((step): State[] => [
    { name: 'rolling_out', step, paused: undefined },
    { name: 'rolling_out', step, paused: 'lunch' },
  ]),
]
const EVENTS: readonly Event[] = [
  ...[true, false].map((enough): Event => ({ type: 'approve', enough })),
  ...[0, 1].flatMap((required) => [true, false].map((enough): Event => ({ type: 'start', enough, required }))),
  ...[{ type: 'reject' }, { type: 'advance' }, { type: 'promote' }, { type: 'abort' }, { type: 'revert' }].map(
    (event) => event as Event,
  ),
  { type: 'pause', why: 'x' },
  { type: 'supersede' },
]

describe('the state machine', () => {
  test('makes only legal transitions, from every state with every event', () => {
    for (const kind of ['change', 'edit'] as const) {
      for (const state of STATES) {
        for (const event of EVENTS) {
          const next = transition(state, event, { kind, steps: 3 })
          if ('refused' in next) expect(next.refused).not.toBe('')
          else expect(LEGAL[state.name], `${state.name} ${event.type}`).toContain(next.state.name)
        }
      }
    }
  })

  test('the last step always promotes, and no step is skipped', () => {
    for (const type of ['advance', 'promote'] as const) {
      for (const [step, steps] of [
        [0, 1],
        [2, 3],
        [6, 7],
      ] as const) {
        const state: State = { name: 'rolling_out', step, paused: undefined }
        expect(transition(state, { type }, { kind: 'change', steps })).toEqual({ state: { name: 'done' } })
        const next = { name: 'rolling_out', step: step + 1, paused: undefined }
        expect(transition(state, { type }, { kind: 'change', steps: steps + 1 })).toEqual({ state: next })
      }
    }
  })

  test('the guard never advances a paused rollout, and always may revert one', () => {
    const paused: State = { name: 'rolling_out', step: 1, paused: 'lunch' }
    expect(transition(paused, { type: 'advance' }, { kind: 'change', steps: 3 })).toHaveProperty('refused')
    expect(transition(paused, { type: 'revert' }, { kind: 'change', steps: 3 })).toEqual({
      state: { name: 'rolled_back' },
    })
  })
})

class Crash extends Error {}

/** A database whose transactions end in the middle, as those of a process that is killed. */
function crashing(database: Database, random: Random, share: number): Database {
  return {
    ...database,
    transaction: (work) =>
      database.transaction((queries) => {
        let left = random.next() < share ? random.between(1, 12) : Number.POSITIVE_INFINITY
        const query: Queries['query'] = async (sql, parameters) => {
          left -= 1
          if (left === 0) throw new Crash()
          return queries.query(sql, parameters)
        }
        return work({ query })
      }),
  }
}

const RULE_IDS = ['a', 'b', 'c']
const rule = (rule_id: string, limit: number) => ({ rule_id, scope: 'per_user', limit, window_seconds: 60 })
/** Crashes and lost races make the number of transitions random: rounds go on until there are enough. */
const EDGES_MIN = 20
const STEP = { kind: 'canary' as const, share: 0.1, forMs: 1000, maxMs: 4000 }

describe('under crashes and concurrent edits', () => {
  const postgres = usePostgres()

  test.each([1, 2, 3, 4])('every transition is legal and each rule has one rollout (seed %i)', async (seed) => {
    const random = seededRandom(seed)
    const url = postgres().createDatabase()
    const open = async () => {
      const database = await openDatabase({ database: url, dataDir: temporaryFolder() })
      onTestFinished(() => database.close())
      return database
    }
    const [database, second] = [await open(), await open()]
    await migrate(database)
    const rules = new RuleStore(database)
    const author = { actor: 'test', reason: 'setup' }
    const first = RULE_IDS.map((id) => parsedRule(rule(id, 100))).filter((one) => one !== null)
    await rules.edit({ action: 'rules.import', next: async () => first }, { author })
    const nodes = [database, second].map((one) => simulatedNode(crashing(one, random, 0.1), random))
    for (let round = 0; round < 30 || (round < 300 && (await transitionsOf(database)).length < EDGES_MIN); round += 1) {
      if (round % 10 === 9) await setApprovals(database, round === 19 ? 1 : 0, 'command', new Date(0))
      await Promise.all([...nodes, ...nodes].map((act) => act()))
      await invariants(database)
    }
    const edges = await transitionsOf(database)
    for (const { from, to, action } of edges) expect(LEGAL[from], `${action}`).toContain(to)
    expect(edges.length).toBeGreaterThanOrEqual(EDGES_MIN)
    expect(await verifyAudit(database)).toMatchObject({ intact: true })
  })
})

/** One random action of a node; crashes, refusals and lost races are part of the test. */
function simulatedNode(database: Database, random: Random): () => Promise<void> {
  const store = new ProposalStore(database, { moved: () => {}, refresh: async () => {} })
  const rules = new RuleStore(database)
  const callers = ['ann', 'ben'].map((id) => ({ id, role: 'admin' as const }))
  const some = async (): Promise<Proposal | undefined> => {
    const found = await store.list({ limit: 6 })
    return found.length === 0 ? undefined : random.pick(found)
  }
  const limit = () => random.between(1, 1000)
  const onGuard = () => {}
  const create = async () => {
    const ruleId = random.pick(RULE_IDS)
    const plan = async (queries: Queries) => {
      const [row] = await queries.query<{ rule: never }>('SELECT rule FROM rules WHERE rule_id = $1', [ruleId])
      const base = row?.rule ?? null
      const change = { op: 'update' as const, ruleId, base, rule: rule(ruleId, limit()) }
      return { changes: [change], steps: Array(random.between(1, 3)).fill(STEP) as (typeof STEP)[] }
    }
    await store.create({ reason: 'x', guard: GUARD_DEFAULTS, plan }, random.pick(callers))
  }
  const actions: readonly (() => Promise<unknown>)[] = [
    create,
    create,
    create,
    ...(['approve', 'start', 'start', 'start', 'promote', 'promote', 'pause', 'abort', 'reject'] as const).map(
      (verb) => {
        return async () => {
          const one = await some()
          if (one !== undefined) await store[verb](one.id, random.pick(callers), 'because')
        }
      },
    ),
    ...(['advance', 'advance', 'revert', 'pause'] as const).map((type) => async () => {
      const one = await some()
      const event: Event = type === 'pause' ? { type, why: 'guard' } : { type }
      if (one !== undefined) await store.moveIfUnchanged(one.id, one.revision, event, { actor: 'guard', reason: 'x' })
    }),
    async () => {
      const ruleId = random.pick(RULE_IDS)
      const next = parsedRule(rule(ruleId, limit()))
      const hooks = editHooks({ guardMs: random.pick([0, 60_000]), isOff: false, onGuard })
      const edit = { action: 'rule.update', ruleId, next: async () => (next === null ? [] : [next]) }
      await rules.edit(edit, { author: { actor: 'ann', reason: undefined }, hooks })
    },
    async () => {
      const old = await rules.set(random.between(1, await rules.version()))
      const next = (old ?? []).map(parsedRule).filter((one) => one !== null)
      const author = { actor: 'ben', reason: undefined }
      await rules.edit({ action: 'rules.rollback', next: async () => next }, { author, hooks: rollbackHooks() })
    },
  ]
  return async () => {
    try {
      await random.pick(actions)()
    } catch (error) {
      if (!(error instanceof ProblemError) && !(error instanceof Crash)) throw error
    }
  }
}

/** At most one active version per rule, and thus per key; nothing is left behind. */
async function invariants(database: Database): Promise<void> {
  await database.transaction(async (queries) => {
    await queries.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
    const active = await activeProposals(queries)
    const held = active.flatMap(({ id, changes }) => changes.map(({ ruleId }) => `${ruleId} ${id}`)).sort()
    const rows = await queries.query<{ rule_id: string; proposal_id: string }>(
      'SELECT * FROM rollouts ORDER BY rule_id',
    )
    expect(rows.map(({ rule_id, proposal_id }) => `${rule_id} ${proposal_id}`)).toEqual(held)
    const ids = held.map((text) => text.split(' ')[0])
    expect(new Set(ids).size).toBe(ids.length)
    const [count] = await queries.query(
      'SELECT version = (SELECT max(version) FROM rule_versions) AS ok FROM rules_in_force',
    )
    expect(count?.ok).toBe(true)
  })
}

type Edge = { readonly from: StateName; readonly to: StateName; readonly action: string }

/** Transitions of all proposals, from the audit log. Each begins where the one before it ended. */
async function transitionsOf(database: Database): Promise<Edge[]> {
  const rows = await database.query<{ target: string; action: string; diff: string }>(
    "SELECT target, action, diff FROM audit WHERE action LIKE 'proposal.%' ORDER BY seq",
  )
  const last = new Map<string, unknown>()
  return rows.flatMap(({ target, action, diff }) => {
    const { from, to } = JSON.parse(diff) as { from?: State; to?: State }
    if (from === undefined || to === undefined) return []
    if (last.has(target)) expect(from).toEqual(last.get(target))
    last.set(target, to)
    return [{ from: from.name, to: to.name, action }]
  })
}
