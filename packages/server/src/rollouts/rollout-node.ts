// Follows the rollouts of the database in one process: applies them to the limiter, counts pairs, writes the counts
// every second. If the database has not confirmed the rollouts for a while, the current rules apply to all keys:
// two versions never apply to one key for long.

import { type Decision, type Limiter, LimiterError, type Pair, pairsOf, type Rollout, type RuleInput } from 'sluice'
import type { Database, Listening } from '../db/database.ts'
import { Refresher } from '../db/refresher.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { RolloutFacts } from '../metrics/rollout-metrics.ts'
import type { LiveRules } from '../rules/live-rules.ts'
import type { Evaluator } from './evaluator.ts'
import { type WrittenRow, writeWindows } from './guard-table.ts'
import { NodeTotals } from './node-totals.ts'
import { pairShareOf } from './pair-share.ts'
import { type FlushedWindow, PairStatistics } from './pair-statistics.ts'
import { comparedChanges, currentStep, type Proposal } from './proposal.ts'
import { ACTIVE_PRINT, activeProposals, ROLLOUTS_CHANNEL } from './proposal-table.ts'
import { undoneFields } from './rollout-events.ts'
import { isShared } from './tightens.ts'

export type RolloutTiming = {
  /** Interval of confirmations, writes and evaluations. */
  readonly tickMs: number
  /** Without a confirmation for this long, the current rules apply to all keys. */
  readonly confirmMs: number
}

export const ROLLOUT_TIMING: RolloutTiming = { tickMs: 1000, confirmMs: 15_000 }
/** Interval while nothing rolls out: a notification may have been missed. */
const IDLE_MS = 5000
const RULES_LOGGED_MAX = 20

export type RolloutNodeDeps = {
  readonly database: Database
  readonly limiter: Limiter
  readonly live: Pick<LiveRules, 'refresh'>
  readonly metrics: Metrics
  readonly log: Log
  /** Unique per process. */
  readonly node: string
  readonly timing: RolloutTiming
}

type Watched = {
  readonly proposal: Proposal
  readonly pairs: PairStatistics
  readonly totals: NodeTotals
  /** By rule: share of keys that both versions decide. */
  readonly pairShares: ReadonlyMap<string, number>
}

type Confirmation = { readonly print: string; readonly now: number }

export class RolloutNode {
  readonly #deps: RolloutNodeDeps
  readonly #refresher: Refresher = new Refresher(() => this.#confirm())
  #watched: readonly Watched[] = []
  #byRule: ReadonlyMap<string, Watched> = new Map()
  /** Rules under rollout with a global bucket, by id: all their requests are counted. */
  #shared: ReadonlyMap<string, Watched> = new Map()
  /** Rules of canary steps, by id: each version decides for a share of the keys, so their times can be compared. */
  #canaries: ReadonlyMap<string, Watched> = new Map()
  /** Rollouts in force, as read from the database; undefined: read them again. */
  #print: string | undefined
  /** By rule: its rollouts as last logged. */
  #applied: ReadonlyMap<string, string> = new Map()
  #confirmedMs: number = performance.now()
  /** Database time minus monotonic time. */
  #offsetMs = 0
  #unconfirmed = false
  #error: string | undefined
  #listening: Listening | undefined
  #tickTimer: NodeJS.Timeout | undefined
  #watchdog: NodeJS.Timeout | undefined
  #stopped = false
  #evaluator: Evaluator | undefined
  readonly #pairs = new Map<string, number>()
  readonly #moved = new Map<string, number>()
  #dropped = 0

  constructor(deps: RolloutNodeDeps) {
    this.#deps = deps
    deps.metrics.watchRollouts(() => this.#facts())
  }

  /** `evaluator` runs in this process whenever something rolls out. */
  async start(evaluator: Evaluator): Promise<void> {
    this.#evaluator = evaluator
    await this.refresh()
    this.#listening = await this.#deps.database.listen(ROLLOUTS_CHANNEL, () => void this.refresh())
    this.#scheduleTick()
    this.#watch()
  }

  /** Resolves once this node has applied rollouts at least as new as this call. Never rejects. */
  refresh(): Promise<void> {
    return this.#refresher.refresh()
  }

  /** Whether any rule rolls out. */
  get isActive(): boolean {
    return this.#watched.length > 0
  }

  /** Counts the pairs of a decision, its requests to global buckets, and the time that it took. */
  observe(decision: Decision, ms: number): void {
    const pairs = pairsOf(decision)
    if (this.#canaries.size > 0) this.#time(decision, pairs, ms)
    if (pairs.length === 0 && this.#shared.size === 0) return
    const nowMs = performance.now() + this.#offsetMs
    if (this.#shared.size > 0) this.#count(decision, nowMs)
    for (const pair of pairs) {
      this.#byRule.get(pair.ruleId)?.pairs.add(pair, nowMs)
      const name = `${resultOf(pair)} ${pair.ruleId}`
      this.#pairs.set(name, (this.#pairs.get(name) ?? 0) + 1)
    }
  }

  #time({ outcomes }: Decision, pairs: readonly Pair[], ms: number): void {
    const found = new Map<Watched, boolean>()
    for (const { ruleId, variant } of outcomes) {
      const watched = this.#canaries.get(ruleId)
      if (watched !== undefined) found.set(watched, variant === 'candidate' || found.get(watched) === true)
    }
    for (const [watched, isCandidate] of found) {
      const isPaired = pairs.some(({ ruleId }) => this.#canaries.get(ruleId) === watched)
      const name = isCandidate ? 'candidate' : 'current'
      watched.totals.time(isPaired ? `${name}Paired` : name, ms)
    }
  }

  #count({ outcomes }: Decision, nowMs: number): void {
    let last: string | undefined
    for (const { ruleId } of outcomes) {
      if (ruleId !== last) this.#shared.get(ruleId)?.pairs.count(ruleId, nowMs) // outcomes of a rule follow each other
      last = ruleId
    }
  }

  /** Records that this process moved a proposal. */
  moved({ id, state, sentence, changes }: Proposal, byGuard: boolean): void {
    this.#moved.set(state.name, (this.#moved.get(state.name) ?? 0) + 1)
    this.#deps.log.event('rollout_moved', { proposal: id, state: state.name, sentence })
    if (!byGuard || state.name !== 'rolled_back') return
    const rules = changes.map(({ ruleId }) => ruleId)
    const { reverted = [], not_reverted = [] } = undoneFields(changes)
    this.#deps.log.event('rollout_rolled_back', { proposal: id, rules, reverted, not_reverted, reason: sentence })
  }

  /** Reason for /readyz. */
  degradedReason(): string | undefined {
    if (this.#error !== undefined) return `rollouts: this node rejects them, the current rules apply: ${this.#error}`
    if (!this.#unconfirmed) return undefined
    return 'rollouts: the database has not confirmed them; the current rules apply to all keys'
  }

  async stop(): Promise<void> {
    this.#stopped = true
    clearTimeout(this.#tickTimer)
    clearTimeout(this.#watchdog)
    const stopped = this.#refresher.stop()
    await this.#listening?.stop()
    await stopped
    await this.#flush().catch(() => {})
    await this.#evaluator?.close()
  }

  #scheduleTick(): void {
    const { tickMs } = this.#deps.timing
    this.#tickTimer = setTimeout(() => void this.#tick(), this.isActive ? tickMs : Math.max(tickMs, IDLE_MS)).unref()
  }

  async #tick(): Promise<void> {
    await this.refresh()
    await this.#flush().catch(() => {}) // kept for the next flush
    if (this.isActive && !this.#stopped) await this.#evaluator?.tick()
    if (!this.#stopped) this.#scheduleTick()
  }

  /** Independent of queries, which may hang. */
  #watch(): void {
    const { tickMs, confirmMs } = this.#deps.timing
    if (this.isActive && !this.#unconfirmed && performance.now() - this.#confirmedMs > confirmMs) void this.#dropAll()
    this.#watchdog = setTimeout(() => this.#watch(), tickMs).unref()
  }

  async #dropAll(): Promise<void> {
    const { limiter, log, timing } = this.#deps
    this.#unconfirmed = true
    this.#print = undefined
    log.event('rollouts_unconfirmed', { seconds: Math.round(timing.confirmMs / 1000) })
    await limiter.setRollouts([])
  }

  async #confirm(): Promise<void> {
    const sentMs = performance.now()
    try {
      const sql = `SELECT ${ACTIVE_PRINT} AS print, (1000 * extract(epoch FROM clock_timestamp()))::float8 AS now`
      const [row] = await this.#deps.database.query<Confirmation>(sql, [])
      if (row === undefined) return
      this.#offsetMs = row.now - (sentMs + performance.now()) / 2
      if (row.print !== this.#print && !(await this.#apply())) return
      this.#confirmedMs = sentMs
      if (this.#unconfirmed) this.#deps.log.event('rollouts_confirmed', {})
      this.#unconfirmed = false
    } catch {
      // The watchdog reports a database that stays unreachable.
    }
  }

  /** Returns false if the rules that the rollouts refer to are not active yet. */
  async #apply(): Promise<boolean> {
    const { limiter, live, log } = this.#deps
    const { print, version, proposals } = await this.#read()
    if (limiter.version < version) await live.refresh()
    if (limiter.version < version) return false
    try {
      this.#use(proposals)
      const rollouts = this.#watched.flatMap(rolloutsOf)
      await limiter.setRollouts(rollouts)
      this.#error = undefined
      this.#logApplied(rollouts, version)
    } catch (error) {
      if (!(error instanceof LimiterError)) throw error
      this.#error = error.message
      log.event('rollouts_rejected', { reason: error.message })
    }
    this.#print = print
    return true
  }

  /** Only if a rollout began, moved or ended: the guard also writes to proposals that stay as they are. */
  #logApplied(rollouts: readonly Rollout[], version: number): void {
    const applied = new Map<string, string>()
    for (const { pairShare: _, ...rollout } of rollouts) {
      applied.set(rollout.ruleId, `${applied.get(rollout.ruleId) ?? ''}${JSON.stringify(rollout)}\n`)
    }
    const ids = new Set([...this.#applied.keys(), ...applied.keys()])
    const rules = [...ids].filter((id) => applied.get(id) !== this.#applied.get(id)).slice(0, RULES_LOGGED_MAX)
    this.#applied = applied
    if (rules.length > 0) this.#deps.log.event('rollouts_applied', { rollouts: applied.size, rules, version })
  }

  #read(): Promise<{ readonly print: string; readonly version: number; readonly proposals: Proposal[] }> {
    return this.#deps.database.transaction(async (queries) => {
      await queries.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY')
      const sql = `SELECT ${ACTIVE_PRINT} AS print, version FROM rules_in_force`
      const [row] = await queries.query<{ print: string; version: number }>(sql, [])
      return { print: row?.print ?? '', version: row?.version ?? 0, proposals: await activeProposals(queries) }
    })
  }

  /** Keeps the statistics of proposals that continue. */
  #use(proposals: readonly Proposal[]): void {
    const known = new Map(this.#watched.map((one) => [keyOf(one.proposal), one]))
    this.#watched = proposals.map((proposal) => {
      const { salt, guard } = proposal
      const windowMs = guard === 'off' ? 10_000 : guard.windowMs
      const fresh = () => ({
        pairs: new PairStatistics(salt, windowMs),
        totals: new NodeTotals(this.#deps.metrics, windowMs),
      })
      const { pairs, totals } = known.get(keyOf(proposal)) ?? fresh()
      const pairShares = new Map(
        comparedChanges(proposal).map((change) => [change.ruleId, pairShareOf(proposal, change)]),
      )
      return { proposal, pairs, totals, pairShares }
    })
    this.#byRule = new Map(
      this.#watched.flatMap((watched) =>
        comparedChanges(watched.proposal).map(({ ruleId }) => [ruleId, watched] as const),
      ),
    )
    this.#canaries = new Map(
      [...this.#byRule].filter(([, { proposal }]) => proposal.guard !== 'off' && isCanary(proposal)),
    )
    this.#shared = new Map(
      this.#watched.flatMap((watched) => {
        const { proposal } = watched
        return proposal.guard === 'off'
          ? []
          : comparedChanges(proposal)
              .filter(isShared)
              .map(({ ruleId }) => [ruleId, watched] as const)
      }),
    )
  }

  async #flush(): Promise<void> {
    const { database, node } = this.#deps
    const nowMs = performance.now() + this.#offsetMs
    const flushed = this.#watched
      .filter(({ proposal }) => proposal.guard !== 'off')
      .map((watched) => ({ watched, windows: watched.pairs.changed() }))
    const rows = flushed.flatMap(({ watched, windows }) => [
      ...windows.map((window) => rowOf(watched.proposal, window)),
      nodeRow(watched, nowMs, this.#error),
    ])
    try {
      await writeWindows(database, node, rows)
    } catch (error) {
      for (const { watched, windows } of flushed) watched.pairs.failed(windows)
      throw error
    }
    for (const { pairs } of this.#watched) {
      pairs.forget(nowMs)
      this.#dropped += pairs.dropped
      pairs.dropped = 0
    }
  }

  #facts(): RolloutFacts {
    const rules = this.#watched.flatMap(({ proposal, pairShares }) => {
      const { state } = proposal
      const share = currentStep(proposal)?.share ?? 0
      const paused = state.name === 'rolling_out' && state.paused !== undefined
      return comparedChanges(proposal).map(({ ruleId }) => ({
        ruleId,
        share,
        pairShare: pairShares.get(ruleId) ?? 0,
        paused,
      }))
    })
    return {
      rules,
      pairs: this.#pairs,
      moved: this.#moved,
      dropped: this.#dropped,
      failures: this.#evaluator?.failures ?? 0,
      isEvaluator: this.#evaluator?.isHolder ?? false,
      unconfirmed: this.#unconfirmed,
      confirmedSeconds: this.isActive ? (performance.now() - this.#confirmedMs) / 1000 : 0,
    }
  }
}

function isCanary(proposal: Proposal): boolean {
  const { kind, share } = currentStep(proposal) ?? {}
  return kind === 'canary' && share !== undefined && share < 1
}

function keyOf({ id, attempt }: Proposal): string {
  return `${id} ${attempt}`
}

function resultOf({ currentDenied, candidateDenied }: Pair): string {
  if (currentDenied === candidateDenied) return 'same'
  return candidateDenied ? 'newly_denied' : 'newly_allowed'
}

function rowOf({ id, attempt }: Proposal, { ruleId, startMs, figures }: FlushedWindow): WrittenRow {
  return { proposal_id: id, attempt, rule_id: ruleId, window_ms: startMs, figures }
}

function nodeRow({ proposal, totals }: Watched, nowMs: number, error: string | undefined): WrittenRow {
  const { startMs, figures } = totals.figures(nowMs)
  const all = error === undefined ? figures : { ...figures, error }
  const { id, attempt } = proposal
  return { proposal_id: id, attempt, rule_id: '', window_ms: startMs, figures: all }
}

/** Rollouts for the limiter. */
function rolloutsOf({ proposal, pairShares }: Watched): Rollout[] {
  const { kind, salt, attempt } = proposal
  const share = currentStep(proposal)?.share ?? 0
  return comparedChanges(proposal).map(({ ruleId, base, rule }): Rollout => {
    const common = { ruleId, salt, pairShare: pairShares.get(ruleId) ?? 0, attempt }
    if (kind === 'edit') return { ...common, previous: base as RuleInput | null }
    return { ...common, candidate: rule as RuleInput | null, share }
  })
}
