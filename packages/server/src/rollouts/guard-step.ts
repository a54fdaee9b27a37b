// Turns a verdict of the guard into an event. Pure. Hold never advances and never rolls back.

import { durationText } from '../text/duration.ts'
import type { Verdict } from './judge.ts'
import type { Proposal } from './proposal.ts'
import type { Event } from './state.ts'

export type GuardStep = {
  readonly event?: Event
  /** Reason for the audit log and the sentence. */
  readonly reason: string
  /** A metric failed, and the guard may neither revert nor pause: alerts only. */
  readonly alert: boolean
}

/** Errors in a row that pause a rollout. */
export const ERRORS_MAX = 4

/**
 * `errors`: errors in a row, this verdict included. `alerted`: the guard has alerted before, and a person went on.
 * `waits`: the guard has still to judge rules of the edit, after later edits of them.
 */
export function guardStep(
  { kind, state, steps, stepAt }: Pick<Proposal, 'kind' | 'state' | 'steps' | 'stepAt'>,
  { outcome, action, reason }: Pick<Verdict, 'outcome' | 'action' | 'reason'>,
  { errors, alerted, waits = false }: { readonly errors: number; readonly alerted: boolean; readonly waits?: boolean },
  nowMs: number,
): GuardStep {
  const nothing: GuardStep = { reason, alert: false }
  if (state.name !== 'rolling_out') return nothing
  const isPaused = state.paused !== undefined
  const pause = (why: string): GuardStep =>
    isPaused ? nothing : { event: { type: 'pause', why }, reason: why, alert: false }
  const elapsedMs = nowMs - (stepAt?.getTime() ?? nowMs)
  const { forMs, maxMs } = steps[state.step] ?? {}
  const edited: GuardStep = !waits && elapsedMs >= (forMs ?? 0) ? { ...nothing, event: { type: 'advance' } } : nothing
  if (outcome === 'fail' && action === 'revert') return { event: { type: 'revert' }, reason, alert: false }
  if (outcome === 'fail' && kind === 'edit') return { ...edited, alert: true }
  if (outcome === 'fail' && action === 'pause') return pause(reason)
  if (outcome === 'fail' && !alerted)
    return { ...pause(`${reason}; a defence against abuse is not rolled back automatically`), alert: true }
  if (kind === 'edit') return edited
  if (outcome === 'error' && errors >= ERRORS_MAX) return pause(`${errors} errors in a row: ${reason}`)
  if (isPaused) return nothing
  if (outcome === 'pass' && forMs !== undefined && elapsedMs >= forMs)
    return { event: { type: 'advance' }, reason, alert: false }
  if (maxMs === undefined || elapsedMs < maxMs) return nothing
  const missing = outcome === 'pass' ? 'not promoted' : 'no verdict'
  return pause(`${missing} after ${durationText(maxMs)}: ${reason}`)
}
