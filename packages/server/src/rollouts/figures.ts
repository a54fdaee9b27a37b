// Figures of the guard over time, for charts: the windows of the step, as the guard judges them.

import type { Queries } from '../db/database.ts'
import { readWindows } from './guard-table.ts'
import type { PairFigures } from './pair-statistics.ts'
import { comparedChanges, type Proposal } from './proposal.ts'
import { forgivesPhase } from './tightens.ts'
import { inStep, mergedPairs, offsetDenials, type PairWindow } from './windows.ts'

export type GuardFigures = {
  /** 0: the guard is off. */
  readonly windowMs: number
  readonly rules: readonly { readonly ruleId: string; readonly windows: readonly PairWindow[] }[]
}

/** Windows that are kept for a chart: the newest. */
const WINDOWS_MAX = 360

export async function guardFigures(queries: Queries, proposal: Proposal): Promise<GuardFigures> {
  const { id, guard, startedAt, stepAt } = proposal
  if (guard === 'off') return { windowMs: 0, rules: [] }
  const { windowMs } = guard
  const { keyPercent, points } = guard.newlyDenied
  const stepAtMs = stepAt?.getTime() ?? 0
  // Also windows before the step: their newly allowed requests may offset refusals of the step.
  const rows = await readWindows(queries, id, (startedAt?.getTime() ?? 0) - windowMs)
  return {
    windowMs,
    rules: comparedChanges(proposal).map((change) => {
      const { ruleId } = change
      const starts = new Map<number, PairFigures[]>()
      for (const { rule_id, window_ms: startMs, figures } of rows) {
        if (rule_id !== ruleId) continue
        starts.set(startMs, [...(starts.get(startMs) ?? []), figures as PairFigures]) // a row of a rule
      }
      const merged = [...starts].map(([startMs, figures]) => mergedPairs(startMs, figures, keyPercent))
      const offset = offsetDenials(merged, forgivesPhase(change, points))
      const windows = offset.filter((window) => inStep(window, stepAtMs, windowMs))
      return { ruleId, windows: windows.slice(-WINDOWS_MAX) }
    }),
  }
}
