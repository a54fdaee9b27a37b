// Evaluates the guard of every rollout, once a second, in the one process that is the leader. Reads figures without
// locks; acts through the state machine, which checks under a lock that nothing has changed.

import { appendAudit } from '../audit/audit.ts'
import type { Database } from '../db/database.ts'
import { DatabaseUnavailable } from '../db/database.ts'
import type { Log } from '../log.ts'
import { ERRORS_MAX, type GuardStep, guardStep } from './guard-step.ts'
import { acquireLeaderLock, deleteOldRows, readWindows, releaseLeaderLock, type WindowRow } from './guard-table.ts'
import { type Evidence, judge, type Verdict, type WatchedRule } from './judge.ts'
import { nextPairShare, nextSharedPairShare, pairShareOf, tooBusyReason, wantedPairs } from './pair-share.ts'
import type { PairFigures } from './pair-statistics.ts'
import { comparedChanges, currentStep, type Proposal, type ProposedChange, type StoredVerdict } from './proposal.ts'
import type { ProposalStore } from './proposal-store.ts'
import { activeProposals, savePairShares, saveVerdict } from './proposal-table.ts'
import { emitEvent } from './rollout-events.ts'
import { forgivesPhase, isExempt, isShared, unpairableReason } from './tightens.ts'
import {
  type Credits,
  inStep,
  mergedNodes,
  mergedPairs,
  type NodeFigures,
  type NodeWindow,
  offsetDenials,
  type PairWindow,
  summed,
} from './windows.ts'

export type EvaluatorDeps = {
  readonly database: Database
  readonly proposals: ProposalStore
  /** Unique per process. */
  readonly holder: string
  readonly lockMs: number
  readonly log: Log
}

type Windows = {
  readonly rules: Map<string, PairWindow[]>
  readonly nodes: NodeWindow[]
  /** Per rule: sum of this step's windows that the guard no longer evaluates. */
  readonly earlier: Map<string, PairWindow>
  /** Per rule: credits left by all windows that were dropped. */
  readonly credits: Map<string, Credits>
  /** Rules with pairs in this attempt. */
  readonly paired: Set<string>
  /** Time of the last read, database time. */
  readMs: number | undefined
}
/** One step of a proposal: facts that do not change during it, and its windows. */
type Known = { rules: readonly KnownRule[]; updatedMs: number; readonly windows: Windows }
type KnownRule = Omit<WatchedRule, 'windows'> & { readonly change: ProposedChange; readonly isShared: boolean }

type Judged = { readonly verdict: Verdict; readonly pairShares: Readonly<Record<string, number>> }

const CLEAN_MS = 60_000
const KEPT_MS = 7 * 86_400_000
/** Rows that a node writes later than this are ignored. */
const LATE_ROWS_MS = 600_000
/** A write may become visible this long after its time. */
const COMMIT_MS = 10_000

export class Evaluator {
  readonly #deps: EvaluatorDeps
  #known = new Map<string, Known>()
  #cleanedMs = 0
  /** Errors in a row, by proposal. */
  readonly #errors = new Map<string, number>()
  #isHolder = false
  /** Evaluations that failed since the start. */
  failures = 0

  constructor(deps: EvaluatorDeps) {
    this.#deps = deps
  }

  get isHolder(): boolean {
    return this.#isHolder
  }

  /** Evaluates all rollouts, if this process is the leader. Never rejects. */
  async tick(): Promise<void> {
    const { database, holder, lockMs, log } = this.#deps
    try {
      const held = await acquireLeaderLock(database, holder, lockMs)
      if (held !== this.#isHolder) log.event(held ? 'guard_evaluator_started' : 'guard_evaluator_lost', { holder })
      this.#isHolder = held
      if (!held) return
      const nowMs = await this.#nowMs()
      const proposals = await activeProposals(database)
      const ids = new Set(proposals.map(({ id }) => id))
      this.#known = new Map([...this.#known].filter(([key]) => ids.has(key.split(' ')[0] ?? '')))
      for (const proposal of proposals) await this.#tryEvaluate(proposal, nowMs)
      if (nowMs - this.#cleanedMs > CLEAN_MS) {
        this.#cleanedMs = nowMs
        await deleteOldRows(database, nowMs - KEPT_MS)
      }
    } catch (error) {
      this.#isHolder = false
      if (!(error instanceof DatabaseUnavailable)) this.#failed(undefined, error)
    }
  }

  /** Lets another process take over at once. */
  async close(): Promise<void> {
    if (this.#isHolder) await releaseLeaderLock(this.#deps.database, this.#deps.holder).catch(() => {})
  }

  /** A rollout that cannot be evaluated holds, and pauses after some errors in a row. The others go on. */
  async #tryEvaluate(proposal: Proposal, nowMs: number): Promise<void> {
    try {
      await this.#evaluate(proposal, nowMs)
      this.#errors.delete(proposal.id)
    } catch (error) {
      if (error instanceof DatabaseUnavailable) throw error
      this.#failed(proposal, error)
      const count = (this.#errors.get(proposal.id) ?? 0) + 1
      this.#errors.set(proposal.id, count)
      if (count !== ERRORS_MAX || proposal.kind === 'edit') return
      const reason = `${count} errors in a row: the guard cannot be evaluated: ${String(error)}`
      const event = { type: 'pause' as const, why: reason }
      await this.#deps.proposals.moveIfUnchanged(proposal.id, proposal.revision, event, { actor: 'guard', reason })
    }
  }

  async #evaluate(proposal: Proposal, nowMs: number): Promise<void> {
    const { database } = this.#deps
    const { verdict, pairShares } = await this.#verdictOf(proposal, nowMs)
    const errors = verdict.outcome === 'error' ? (proposal.verdict?.errors ?? 0) + 1 : 0
    const wasAlerted = proposal.verdict?.alerted === true
    const waits = proposal.changes.some(({ judged }) => judged === 'later')
    const decision = guardStep(proposal, verdict, { errors, alerted: wasAlerted, waits }, nowMs)
    const alerts = decision.alert && !wasAlerted
    const alerted = wasAlerted || decision.alert
    const stored: StoredVerdict = { ...verdict, errors, alerted, at: new Date(nowMs).toISOString() }
    await saveVerdict(database, proposal.id, stored)
    if (alerts) await this.#alert({ ...proposal, verdict: stored }, decision, nowMs)
    if (decision.event !== undefined) {
      const cause = { actor: 'guard', reason: decision.reason, verdict: stored }
      await this.#deps.proposals.moveIfUnchanged(proposal.id, proposal.revision, decision.event, cause)
    } else if (Object.keys(pairShares).length > 0) await savePairShares(database, proposal.id, pairShares)
  }

  /** The verdict, and the pair shares that change. */
  async #verdictOf(proposal: Proposal, nowMs: number): Promise<Judged> {
    const { guard, startedAt, stepAt } = proposal
    if (guard === 'off') {
      const verdict = { outcome: 'pass' as const, reason: 'the guard is off', metric: null, action: null, rules: [] }
      return { verdict, pairShares: {} }
    }
    const forMs = currentStep(proposal)?.forMs
    const spanMs = Math.max(forMs ?? 0, guard.of * guard.windowMs, LATE_ROWS_MS) + 2 * guard.windowMs
    const sinceMs = Math.max((startedAt?.getTime() ?? nowMs) - guard.windowMs, nowMs - spanMs)
    const known = this.#knownOf(proposal, guard.newlyDenied.points)
    if (known.rules.length === 0) {
      const reason = 'a later edit of the same rules is under guard first'
      return { verdict: { outcome: 'hold', reason, metric: null, action: null, rules: [] }, pairShares: {} }
    }
    await this.#readWindows(proposal, known.windows, sinceMs, nowMs)
    const pairShares: Record<string, number> = {}
    const rules = known.rules.map((rule): WatchedRule => {
      const { ruleId, change } = rule
      const windows = known.windows.rules.get(ruleId) ?? []
      const wasPaired = known.windows.paired.has(ruleId)
      const share = pairShareOf(proposal, change)
      const { nodes } = known.windows
      const next = nextShareOf({ rule, share, windows, wasPaired, nodes }, proposal, nowMs)
      if (next.share !== share) pairShares[ruleId] = next.share
      const unpairable = rule.unpairable ?? next.tooBusy
      const { earlier, credits } = known.windows
      return { ...rule, windows, unpairable, earlier: earlier.get(ruleId), credits: credits.get(ruleId) }
    })
    const evidence: Evidence = {
      settings: guard,
      rules,
      nodes: known.windows.nodes,
      nowMs,
      stepAtMs: stepAt?.getTime() ?? nowMs,
      forMs,
    }
    return { verdict: judge(evidence), pairShares }
  }

  #knownOf(proposal: Proposal, points: number): Known {
    const { id, attempt, stepAt, updatedAt } = proposal
    const key = `${id} ${attempt} ${stepAt?.getTime()}`
    const known = this.#known.get(key)
    const updatedMs = updatedAt.getTime()
    if (known !== undefined) {
      if (known.updatedMs !== updatedMs) Object.assign(known, { rules: knownRules(proposal, points), updatedMs })
      return known
    }
    const fresh: Known = {
      rules: knownRules(proposal, points),
      updatedMs,
      windows: {
        ...{ rules: new Map(), nodes: [], earlier: new Map(), credits: new Map(), paired: new Set() },
        readMs: undefined,
      },
    }
    for (const other of this.#known.keys()) if (other.startsWith(`${id} `)) this.#known.delete(other)
    this.#known.set(key, fresh)
    return fresh
  }

  /** Reads the rows that changed, and at first all of the rollout. */
  async #readWindows(proposal: Proposal, windows: Windows, sinceMs: number, nowMs: number): Promise<void> {
    const { id, guard, startedAt } = proposal
    if (guard === 'off') return
    const { readMs } = windows
    const startedMs = startedAt?.getTime() ?? nowMs
    const fromMs = readMs === undefined ? Math.min(sinceMs, startedMs - guard.windowMs) : sinceMs
    const changedMs = readMs === undefined ? undefined : readMs - COMMIT_MS
    const rows = await readWindows(this.#deps.database, id, fromMs, changedMs)
    windows.readMs = nowMs
    const grouped = new Map<string, WindowRow[]>()
    for (const row of rows) {
      const key = `${row.window_ms} ${row.rule_id}`
      grouped.set(key, [...(grouped.get(key) ?? []), row])
    }
    for (const [first, ...others] of [...grouped.values()] as [WindowRow, ...WindowRow[]][]) {
      const { rule_id: ruleId, window_ms: startMs } = first
      const figures = [first, ...others].map((row) => row.figures)
      if (ruleId === '') replace(windows.nodes, mergedNodes(startMs, figures as NodeFigures[]))
      else {
        const list = windows.rules.get(ruleId) ?? []
        windows.rules.set(ruleId, list)
        const merged = mergedPairs(startMs, figures as PairFigures[], guard.newlyDenied.keyPercent)
        if (merged.rawPairs > 0) windows.paired.add(ruleId)
        replace(list, merged)
      }
    }
    dropBefore(sinceMs, windows, proposal)
  }

  async #alert(proposal: Proposal, { reason }: GuardStep, nowMs: number): Promise<void> {
    const at = new Date(nowMs)
    await this.#deps.database.transaction(async (queries) => {
      const diff = { figures: proposal.verdict?.rules ?? [] }
      const entry = { actor: 'guard', action: 'proposal.alert', target: proposal.id, diff, reason }
      await appendAudit(queries, entry, at)
      await emitEvent(queries, 'rollout.alert', { ...proposal, sentence: reason }, at)
    })
    this.#deps.log.event('rollout_alert', { proposal: proposal.id, reason })
  }

  async #nowMs(): Promise<number> {
    const sql = 'SELECT (1000 * extract(epoch FROM clock_timestamp()))::float8 AS now'
    const [row] = await this.#deps.database.query<{ now: number }>(sql, [])
    return row?.now ?? 0
  }

  #failed(proposal: Proposal | undefined, error: unknown): void {
    this.failures += 1
    this.#deps.log.event('guard_evaluation_failed', { proposal: proposal?.id ?? null, reason: String(error) })
  }
}

function knownRules(proposal: Proposal, points: number): KnownRule[] {
  return comparedChanges(proposal).map((change) => {
    const unpairable = unpairableReason(change)
    return {
      ...{ ruleId: change.ruleId, change, isShared: isShared(change) },
      alertOnly: isExempt(proposal, change),
      phase: forgivesPhase(change, points),
      ...(unpairable === undefined ? {} : { unpairable }),
    }
  })
}

/** Drops windows that the guard no longer evaluates; keeps their sums and credits. */
function dropBefore(sinceMs: number, windows: Windows, proposal: Proposal): void {
  const { guard, stepAt } = proposal
  if (guard === 'off') return
  const changes = comparedChanges(proposal)
  const stepAtMs = stepAt?.getTime() ?? sinceMs
  windows.nodes.splice(0, windows.nodes.filter(({ startMs }) => startMs < sinceMs).length)
  for (const [ruleId, list] of windows.rules) {
    const credits = windows.credits.get(ruleId) ?? new Map()
    windows.credits.set(ruleId, credits)
    const old = list.splice(0, list.filter(({ startMs }) => startMs < sinceMs).length)
    const change = changes.find((one) => one.ruleId === ruleId)
    const phase = change !== undefined && forgivesPhase(change, guard.newlyDenied.points)
    const ofStep = offsetDenials(old, phase, credits).filter((window) => inStep(window, stepAtMs, guard.windowMs))
    const earlier = windows.earlier.get(ruleId)
    if (ofStep.length > 0) windows.earlier.set(ruleId, summed(earlier === undefined ? ofStep : [earlier, ...ofStep]))
  }
}

/** Replaces the window with the same start, and keeps the order. */
function replace<W extends { readonly startMs: number }>(windows: W[], fresh: W): void {
  const others = windows.filter(({ startMs }) => startMs !== fresh.startMs)
  windows.splice(0, windows.length, ...[...others, fresh].sort((one, other) => one.startMs - other.startMs))
}

type Pairing = {
  readonly rule: KnownRule
  readonly share: number
  readonly windows: readonly PairWindow[]
  readonly wasPaired: boolean
  readonly nodes: readonly NodeWindow[]
}

function nextShareOf(
  { rule, share, windows, wasPaired, nodes }: Pairing,
  { guard, startedAt }: Proposal,
  nowMs: number,
): { readonly share: number; readonly tooBusy?: string | undefined } {
  if (guard === 'off' || rule.unpairable !== undefined) return { share }
  const startedMs = startedAt?.getTime() ?? nowMs
  const sinceMs = nowMs - 2 * guard.windowMs
  const perSecond = <W extends { readonly startMs: number }>(all: readonly W[], read: (window: W) => number) => {
    const recent = all.filter(({ startMs }) => startMs > sinceMs)
    const fromMs = Math.max(startedMs, recent[0]?.startMs ?? nowMs)
    return recent.reduce((sum, window) => sum + read(window), 0) / Math.max(1, (nowMs - fromMs) / 1000)
  }
  if (!rule.isShared) {
    const { points, minPairs } = guard.newlyDenied
    const pairsPerSecond = perSecond(windows, ({ rawPairs }) => rawPairs)
    const deniedPerSecond = perSecond(windows, ({ rawNewlyDenied }) => rawNewlyDenied)
    const isSuspect = deniedPerSecond > 0 && 100 * deniedPerSecond >= points * pairsPerSecond
    const wanted = wantedPairs({
      checksPerSecond: perSecond(nodes, ({ decided }) => decided),
      neededPerSecond: (1000 * minPairs) / guard.windowMs,
      isSuspect,
    })
    return { share: nextPairShare(share, pairsPerSecond, wanted, isSuspect) }
  }
  const pairs = windows.reduce((sum, { rawPairs }) => sum + rawPairs, 0)
  const checksPerSecond = perSecond(windows, ({ checks }) => checks)
  const load = { perSecond: checksPerSecond, pairs, wasPaired, elapsedMs: nowMs - startedMs }
  const next = nextSharedPairShare(share, load)
  return { share: next, tooBusy: tooBusyReason(next, load) }
}
