// Effects of single transitions and evaluations on the database, without nodes.

import { createLimiter } from 'sluice'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { Metrics } from '../../src/metrics/metrics.ts'
import { type EditGuard, editHooks } from '../../src/rollouts/edit-hooks.ts'
import { Evaluator } from '../../src/rollouts/evaluator.ts'
import { GUARD_DEFAULTS } from '../../src/rollouts/guard-settings.ts'
import { readWindows, writeWindows } from '../../src/rollouts/guard-table.ts'
import type { Proposal } from '../../src/rollouts/proposal.ts'
import { ProposalStore } from '../../src/rollouts/proposal-store.ts'
import { readProposal } from '../../src/rollouts/proposal-table.ts'
import { ROLLOUT_TIMING, RolloutNode } from '../../src/rollouts/rollout-node.ts'
import type { Step } from '../../src/rollouts/step.ts'
import { parsedRule } from '../../src/rollouts/tightens.ts'
import { databaseSource } from '../../src/rules/database-source.ts'
import { LiveRules } from '../../src/rules/live-rules.ts'
import { RuleStore, rulesIn } from '../../src/rules/rule-store.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { captureLog } from '../service.ts'

const ADMIN = { id: 'admin-token', role: 'admin' } as const
const GUARD = { actor: 'guard', reason: 'rule posts: 60 % newly denied' }
const CANARY: Step = { kind: 'canary', share: 0.1, forMs: undefined, maxMs: undefined }
const SHADOW: Step = { ...CANARY, kind: 'shadow', share: 0 }
const rule = (rule_id: string, more: object = {}) => {
  return { rule_id, scope: 'per_user', limit: 100, window_seconds: 60, ...more }
}

const postgres = usePostgres()

async function opened(...rules: readonly object[]) {
  const database = await openDatabase({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
  onTestFinished(() => database.close())
  const proposals = new ProposalStore(database, { moved: () => {}, refresh: async () => {} })
  const found: EditGuard[] = []
  const edit = async (edited: readonly object[], guardMs = 60_000) => {
    const next = async () => edited.map((one) => parsedRule(one as never)).filter((one) => one !== null)
    const hooks = editHooks({ guardMs, isOff: false, onGuard: (guard) => found.push(guard) })
    await new RuleStore(database).edit(
      { action: 'rules.import', next },
      { author: { actor: 'ann', reason: 'x' }, hooks },
    )
    return found.at(-1)
  }
  await edit(rules, 0)
  const propose = async (changed: readonly { rule_id: string }[], steps: readonly Step[]) => {
    const plan = async () => {
      const present = new Map((await rulesIn(database)).map((one) => [one.rule_id, one]))
      const changes = changed.map((one) => {
        const base = present.get(one.rule_id) ?? null
        return { op: 'update' as const, ruleId: one.rule_id, base, rule: { ...base, ...one } }
      })
      return { changes, steps }
    }
    return proposals.create({ reason: 'x', guard: GUARD_DEFAULTS, plan }, ADMIN)
  }
  const limits = async () => Object.fromEntries((await rulesIn(database)).map((one) => [one.rule_id, one.limit]))
  return { database, proposals, edit, propose, limits }
}

const idOf = (guard: EditGuard | undefined) => (guard !== undefined && 'proposal_id' in guard ? guard.proposal_id : '')

async function known(database: Database, id: string): Promise<Proposal> {
  const proposal = await readProposal(database, id)
  if (proposal === undefined) throw new Error(`no proposal ${id}`)
  return proposal
}

describe('a direct edit of several rules', () => {
  const LOGIN = rule('login', { intent: 'abuse' })

  test('is reverted without its defence against abuse, and says so', async () => {
    const { database, proposals, edit, limits } = await opened(rule('posts'), LOGIN)
    const id = idOf(await edit([rule('posts', { limit: 0 }), { ...LOGIN, limit: 5 }]))
    const { revision } = await known(database, id)
    const reverted = await proposals.moveIfUnchanged(id, revision, { type: 'revert' }, GUARD)
    expect(await limits()).toEqual({ posts: 100, login: 5 })
    expect(reverted?.sentence).toBe(
      'rolled back by the guard: rule posts: 60 % newly denied; reverted posts.limit; ' +
        'not reverted: login.limit (a defence against abuse is not rolled back automatically)',
    )
    const again = await edit([rule('posts', { limit: 0 }), { ...LOGIN, limit: 5 }])
    await proposals.abort(idOf(again), ADMIN, undefined)
    expect(await limits()).toEqual({ posts: 100, login: 5 })
  })

  test('is reverted completely by a person', async () => {
    const { proposals, edit, limits } = await opened(rule('posts'), LOGIN)
    const id = idOf(await edit([rule('posts', { limit: 0 }), { ...LOGIN, limit: 5 }]))
    expect((await proposals.abort(id, ADMIN, undefined)).sentence).toBe(
      'rolled back by admin-token: reverted login.limit, posts.limit',
    )
    expect(await limits()).toEqual({ posts: 100, login: 100 })
  })

  test('names the rules that the guard cannot compare; without others, it is not guarded', async () => {
    const sharded = rule('sharded', { scope: 'global', shards: 4 })
    const { edit } = await opened(rule('posts'), sharded)
    const why = 'a rule with shards has several buckets per key'
    const both = [rule('posts', { limit: 50 }), { ...sharded, limit: 200 }]
    expect(await edit(both)).toMatchObject({
      proposal_id: expect.any(String),
      unguarded: [{ rule_id: 'sharded', why }],
    })
    const { edit: editOne } = await opened(sharded)
    expect(await editOne([{ ...sharded, limit: 200 }])).toEqual({ off: `rule sharded: ${why}` })
  })
})

test('a canary whose rule has become global since the proposal does not start', async () => {
  const { edit, propose, proposals } = await opened(rule('posts'))
  const { id } = await propose([{ rule_id: 'posts', limit: 50 } as never], [CANARY])
  await edit([rule('posts', { scope: 'global' })], 0)
  await expect(proposals.start(id, ADMIN)).rejects.toMatchObject({
    problem: {
      code: 'PROPOSAL_CONFLICT',
      detail: expect.stringContaining('its canary steps are impossible: rule posts has one bucket for all clients'),
      errors: [{ field: 'steps', value: 'posts' }],
    },
  })
  const shadow = await propose([{ rule_id: 'posts', limit: 50 } as never], [SHADOW])
  expect((await proposals.start(shadow.id, ADMIN)).state.name).toBe('rolling_out')
})

const FIGURES = {
  ...{ pairs: 0, newlyDenied: 0, newlyAllowed: 0, bothDenied: 0, top: [], sample: [], keys: [] },
}

test('a retry is judged without figures of the attempt before it, however late a node writes them', async () => {
  const { database, propose, proposals } = await opened(rule('posts'))
  const { id } = await propose([{ rule_id: 'posts', limit: 50 } as never], [CANARY])
  const write = (node: string, attempt: number) =>
    writeWindows(database, node, [
      { proposal_id: id, attempt, rule_id: 'posts', window_ms: 10_000, figures: { ...FIGURES, pairs: attempt } },
    ])
  const written = async () => (await readWindows(database, id, 0)).map(({ figures }) => figures)
  await proposals.start(id, ADMIN)
  await write('one', 1)
  expect(await written()).toHaveLength(1)
  await proposals.abort(id, ADMIN, undefined)
  expect((await proposals.start(id, ADMIN)).attempt).toBe(2)
  await write('late', 1)
  expect(await written()).toEqual([])
  await write('one', 2)
  expect(await written()).toMatchObject([{ pairs: 2 }])
})

describe('the evaluator', () => {
  async function evaluated(rules: readonly object[], changed: readonly { rule_id: string }[]) {
    const { database, propose, proposals } = await opened(...rules)
    const { id } = await propose(changed, [SHADOW])
    await proposals.start(id, ADMIN)
    const earlier = "now() - interval '8 s'"
    await database.query(`UPDATE proposals SET started_at = ${earlier}, step_at = ${earlier} WHERE id = $1`, [id])
    const deps = { database, proposals, holder: 'one', lockMs: 60_000, log: captureLog('info').log }
    const evaluator = new Evaluator(deps)
    const [row] = await database.query<{ now: number }>('SELECT extract(epoch FROM clock_timestamp())::float8 AS now')
    const window_ms = Math.floor(1000 * (row?.now ?? 0)) - 5000
    /** Figures by rule, of the running window: it began five seconds ago. */
    return async (figures: Readonly<Record<string, object>>) => {
      const common = { proposal_id: id, attempt: 1, window_ms }
      const rows = Object.entries(figures).map(([rule_id, one]) => {
        return { ...common, rule_id, figures: { ...FIGURES, ...one } }
      })
      await writeWindows(database, 'node', rows)
      await evaluator.tick()
      expect(evaluator.failures).toBe(0)
      const { pairShares, verdict } = await known(database, id)
      return { pairShares, outcome: verdict?.outcome, reason: verdict?.reason }
    }
  }

  test('gives each rule of a proposal a share of its own: a busy one does not starve a quiet one', async () => {
    const rules = [rule('busy'), rule('quiet')]
    const after = await evaluated(
      rules,
      rules.map((one) => ({ ...one, limit: 90 })),
    )
    const { pairShares } = await after({ busy: { pairs: 100_000 }, quiet: { pairs: 10 } })
    expect(pairShares.busy).toBeLessThan(0.01)
    expect(pairShares.quiet).toBe(0.04)
  })

  test('pairs more keys of a rule whose change seems to harm clients, in too few keys to act on', async () => {
    const after = await evaluated([rule('posts')], [rule('posts', { limit: 90 })])
    const figures = { pairs: 600, newlyDenied: 0 }
    expect((await after({ posts: figures })).pairShares).toEqual({})
    expect((await after({ posts: { ...figures, newlyDenied: 60 } })).pairShares).toEqual({ posts: 0.04 })
  })

  test('pairs a global bucket while it is quiet, then holds and says why', async () => {
    const shared = rule('shared', { scope: 'global', limit: 100_000 })
    const after = await evaluated([shared], [{ ...shared, limit: 90_000 } as never])
    expect((await after({ shared: { checks: 400 } })).pairShares).toEqual({ shared: 1 })
    expect((await after({ shared: { checks: 900, pairs: 500 } })).pairShares).toEqual({ shared: 1 })
    const why = 'rule shared: no pairs: too many requests in one bucket to compare (at most 1000 a second)'
    const busy = { checks: 60_000, pairs: 40_000 }
    expect(await after({ shared: busy })).toEqual({
      ...{ pairShares: { shared: 0 }, outcome: 'hold', reason: `${why}; promote it by hand` },
    })
    // Quiet again: its counterfactual bucket has missed requests.
    expect(await after({ shared: { checks: 10, pairs: 5 } })).toMatchObject({
      ...{ pairShares: { shared: 0 }, outcome: 'hold', reason: expect.stringContaining(why) },
    })
  })
})

describe('the p99 of a canary step', () => {
  /** Verdict after decisions that took `ms(variant)`, as nodes count them. */
  async function verdictOf(ms: (variant: string | undefined) => number) {
    const { database, propose, proposals } = await opened(rule('posts'))
    const { id } = await propose([{ rule_id: 'posts', limit: 90 } as never], [{ ...CANARY, share: 0.5 }])
    await proposals.start(id, ADMIN)
    const guard = { ...GUARD_DEFAULTS, failing: 1, of: 3 }
    await database.query('UPDATE proposals SET guard = $2 WHERE id = $1', [id, JSON.stringify(guard)])
    const limiter = createLimiter({ rules: [], version: 0 })
    const { log } = captureLog('info')
    const common = { limiter, metrics: new Metrics(), log }
    const live = new LiveRules({ ...common, source: databaseSource(database, 'a test'), snapshot: undefined })
    const node = new RolloutNode({ ...common, database, live, node: 'one', timing: ROLLOUT_TIMING })
    onTestFinished(() => limiter.close())
    await live.refresh()
    await node.refresh()
    for (let user = 0; user < 1000; user += 1) {
      const decision = limiter.checkSync({ user: `user ${user}` })
      if (decision !== undefined) node.observe(decision, ms(decision.outcomes[0]?.variant))
    }
    await node.stop() // writes the figures
    await live.stop()
    // The window has ended.
    await database.query('UPDATE guard_windows SET window_ms = window_ms - 20000')
    const earlier = "now() - interval '60 s'"
    await database.query(`UPDATE proposals SET started_at = ${earlier}, step_at = ${earlier}`)
    const evaluator = new Evaluator({ database, proposals, holder: 'one', lockMs: 60_000, log })
    await evaluator.tick()
    expect(evaluator.failures).toBe(0)
    const { verdict, state } = await known(database, id)
    return {
      outcome: verdict?.outcome,
      metric: verdict?.metric,
      isPaused: 'paused' in state && state.paused !== undefined,
    }
  }

  test('pauses a candidate that is itself slower', async () => {
    const found = await verdictOf((variant) => (variant === 'candidate' ? 700 : 3))
    expect(found).toEqual({ outcome: 'fail', metric: 'p99', isPaused: true })
  })

  test('passes on a machine that is slow for both versions', async () => {
    const found = await verdictOf(() => 5000)
    expect(found).toMatchObject({ metric: null, isPaused: false })
  })
})
