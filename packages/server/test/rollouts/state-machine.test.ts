import { createLimiter, type Limiter } from 'sluice'
import { type Random, seededRandom } from 'sluice/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import { setApprovals } from '../../src/approvals/required-approvals.ts'
import { verifyAudit } from '../../src/audit/audit.ts'
import type { Database, Queries } from '../../src/db/database.ts'
import { migrate } from '../../src/db/migrate.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { createLog } from '../../src/log.ts'
import { Metrics } from '../../src/metrics/metrics.ts'
import { ProblemError } from '../../src/problems/problem.ts'
import { editHooks, rollbackHooks } from '../../src/rollouts/edit-hooks.ts'
import { GUARD_DEFAULTS } from '../../src/rollouts/guard-settings.ts'
import { comparedChanges, type Proposal } from '../../src/rollouts/proposal.ts'
import { ProposalStore } from '../../src/rollouts/proposal-store.ts'
import { activeProposals } from '../../src/rollouts/proposal-table.ts'
import { ROLLOUT_TIMING, RolloutNode } from '../../src/rollouts/rollout-node.ts'
import { type Event, STATE_NAMES, type State, type StateName, transition } from '../../src/rollouts/state.ts'
import { parsedRule } from '../../src/rollouts/tightens.ts'
import { databaseSource } from '../../src/rules/database-source.ts'
import { LiveRules } from '../../src/rules/live-rules.ts'
import { RuleStore, rulesIn } from '../../src/rules/rule-store.ts'
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
const STEP = { kind: 'canary' as const, share: 0.5, forMs: 1000, maxMs: 4000 }
const CALLERS = ['ann', 'ben']
const USERS = Array.from({ length: 20 }, (_, index) => `user ${index}`)

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
    for (const id of CALLERS) await createToken(database, id)
    const nodes = [database, second].map((one) => simulatedNode(crashing(one, random, 0.1), random))
    const followers = [follower(database, 'one'), follower(second, 'two')]
    const isCovered = async () => {
      return (await transitionsOf(database)).length >= EDGES_MIN && (await approvedByOthers(database)) > 0
    }
    let candidates = 0
    for (let round = 0; round < 30 || (round < 300 && (candidates === 0 || !(await isCovered()))); round += 1) {
      if (round % 10 === 9) await setApprovals(database, round % 20 === 9 ? 1 : 0, 'command', new Date(0))
      await Promise.all([...nodes, ...nodes].map((act) => act()))
      await invariants(database)
      candidates += await enforcedAlike(database, followers)
    }
    expect(candidates).toBeGreaterThan(0)
    expect(await approvedByOthers(database)).toBeGreaterThan(0)
    const ownApprovals = 'SELECT id FROM approvals JOIN proposals ON id = subject_id WHERE token_id = author'
    expect(await database.query(ownApprovals)).toEqual([])
    const edges = await transitionsOf(database)
    for (const { from, to, action } of edges) expect(LEGAL[from], `${action}`).toContain(to)
    expect(edges.length).toBeGreaterThanOrEqual(EDGES_MIN)
    expect(await verifyAudit(database)).toMatchObject({ intact: true })
  })
})

/** Only approvals of known tokens count. */
async function createToken(database: Database, id: string): Promise<void> {
  const sql = "INSERT INTO api_tokens (id, name, role, hash, created_at) VALUES ($1, $1, 'admin', $1, now())"
  await database.query(sql, [id])
}

/** Drafts that were approved while an approval was required. */
async function approvedByOthers(database: Database): Promise<number> {
  const rows = await database.query<{ action: string; diff: string }>(
    "SELECT action, diff FROM audit WHERE action IN ('approvals.set', 'proposal.approve') ORDER BY seq",
  )
  let required = 0
  let approved = 0
  for (const { action, diff } of rows) {
    const read = JSON.parse(diff) as { required?: number; from?: State; to?: State }
    if (action === 'approvals.set') required = read.required ?? 0
    else if (required > 0 && read.from?.name === 'draft' && read.to?.name === 'approved') approved += 1
  }
  return approved
}

type Follower = { readonly limiter: Limiter; refresh(): Promise<void> }

/** A limiter that follows rules and rollouts, as that of a node. */
function follower(database: Database, name: string): Follower {
  const limiter = createLimiter({ rules: [], version: 0 })
  const common = { limiter, metrics: new Metrics(), log: createLog('silent') }
  const live = new LiveRules({ ...common, source: databaseSource(database, 'a test'), snapshot: undefined })
  const node = new RolloutNode({ ...common, database, live, node: name, timing: ROLLOUT_TIMING })
  onTestFinished(async () => {
    await node.stop()
    await live.stop()
    await limiter.close()
  })
  const refresh = async () => {
    await live.refresh()
    await node.refresh()
  }
  return { limiter, refresh }
}

/**
 * Every node enforces one version of each rule for a key, the same, with the numbers of the database. Returns how many
 * keys are under a candidate that is not in the rule set.
 */
async function enforcedAlike(database: Database, followers: readonly Follower[]): Promise<number> {
  for (const { refresh } of followers) await refresh()
  const current = new Map((await rulesIn(database)).map((one) => [one.rule_id, one.limit]))
  const staged = (await activeProposals(database)).filter(({ kind }) => kind === 'change')
  const candidates = new Map(staged.flatMap(({ changes }) => changes).map((one) => [one.ruleId, one.rule?.limit]))
  let under = 0
  for (const user of USERS) {
    const [one, other] = followers.map(({ limiter }) => {
      const { outcomes = [] } = limiter.checkSync({ user }) ?? {}
      return outcomes.map(({ ruleId, variant, limit }) => ({ ruleId, variant, limit }))
    })
    expect(other).toEqual(one)
    expect(one?.map(({ ruleId }) => ruleId).sort()).toEqual(RULE_IDS)
    for (const { ruleId, variant, limit } of one ?? []) {
      const isStaged = variant === 'candidate' && candidates.has(ruleId)
      if (isStaged) under += 1
      expect(limit).toBe((isStaged ? candidates : current).get(ruleId))
    }
  }
  return under
}

/** One random action of a node; crashes, refusals and lost races are part of the test. */
function simulatedNode(database: Database, random: Random): () => Promise<void> {
  const store = new ProposalStore(database, { moved: () => {}, refresh: async () => {} })
  const rules = new RuleStore(database)
  const callers = CALLERS.map((id) => ({ id, role: 'admin' as const }))
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
    ...(
      ['approve', 'approve', 'start', 'start', 'start', 'promote', 'promote', 'pause', 'abort', 'reject'] as const
    ).map((verb) => {
      return async () => {
        const one = await some()
        if (one !== undefined) await store[verb](one.id, random.pick(callers), 'because')
      }
    }),
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

/** The rules of active proposals, and no others, are held; nothing is left behind. */
async function invariants(database: Database): Promise<void> {
  await database.transaction(async (queries) => {
    await queries.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
    const active = await activeProposals(queries)
    const held = active.flatMap((one) => comparedChanges(one).map(({ ruleId }) => `${ruleId} ${one.id}`)).sort()
    const rows = await queries.query<{ rule_id: string; proposal_id: string }>(
      'SELECT * FROM rollouts ORDER BY rule_id',
    )
    expect(rows.map(({ rule_id, proposal_id }) => `${rule_id} ${proposal_id}`)).toEqual(held)
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
