// Selects the requests of a recording that can be replayed. A recording may have several sample rates, because nodes
// lower theirs under load: only clients that were recorded completely all the time are replayed.

import { type SeenFacts, seenFacts } from './coverage.ts'
import { byTime, type RecordedRequest } from './recorded-request.ts'

export type Recording = {
  /** In order. */
  readonly requests: readonly RecordedRequest[]
  /** Events that are missing between others of their process. */
  readonly lost: number
  /** Requests of clients that were not recorded completely. */
  readonly unreplayable: number
  readonly sample: { readonly rate: number; readonly seen: SeenFacts }
}

/**
 * Sorts, and keeps the requests of clients that are in the smallest sample. Requests without a client need sample 1.
 * Requests with an unknown sample rate, 0, are left out.
 */
export function recordingOf(requests: readonly RecordedRequest[]): Recording {
  const known = requests.filter(({ sampleRate = 1 }) => sampleRate > 0)
  const rate = known.reduce((lowest, { sampleRate = 1 }) => Math.min(lowest, sampleRate), 1)
  const isKept = ({ kind, position = 1 }: RecordedRequest) => rate >= 1 || kind === 'reset' || position < rate
  const kept = known.filter(isKept).sort(byTime)
  const lost = lostBetween(known)
  const seen = seenFacts(known)
  seen.lost = lost
  return { requests: kept, lost, unreplayable: requests.length - kept.length, sample: { rate, seen } }
}

/** Events are numbered in the order of their answers: this many may have a later store time than the first one. */
const REORDERED_MAX = 100

type Numbers = { first: number; last: number; count: number }

/** Whether a number 1 is of a new process. Otherwise the store decided the first event of this one after others. */
function isOver({ first, last, count }: Numbers): boolean {
  return first === 1 || last - count > REORDERED_MAX
}

/** Processes number their events from 1 without gaps. A new process of the same node starts again. */
function lostBetween(requests: readonly RecordedRequest[]): number {
  const nodes = new Map<string, Numbers[]>()
  const numbered = requests.filter(({ sequence = 0 }) => sequence > 0)
  for (const { node = '', sequence = 0 } of numbered.sort(byTime)) {
    const runs = nodes.get(node) ?? []
    const run = runs.at(-1)
    if (run === undefined || (sequence === 1 && isOver(run))) runs.push({ first: sequence, last: sequence, count: 1 })
    else {
      run.first = Math.min(run.first, sequence)
      run.last = Math.max(run.last, sequence)
      run.count += 1
    }
    nodes.set(node, runs)
  }
  const gaps = [...nodes.values()].flat().map(({ first, last, count }) => Math.max(0, last - first + 1 - count))
  return gaps.reduce((sum, gap) => sum + gap, 0)
}
