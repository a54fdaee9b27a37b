// Messages between a page and its replay worker.

import type { MalformedLine, RecordedRequest, ReplayResult } from 'sluice/replay'
import type { PlainRule } from '../rule-text.ts'

/** Answer of GET /rate-limit/simulate/requests. */
export type Recording = {
  readonly requests: readonly RecordedRequest[]
  readonly sample_rate: number
  readonly recording: {
    readonly recorded: number
    readonly truncated: boolean
    readonly lost?: number
    readonly unreplayable?: number
    readonly malformed?: number
  }
  /** Settings of the node that decide which rules apply. */
  readonly options?: { readonly layer?: 'edge' | 'service' | null; readonly ipv6_prefix?: number | null }
}

/** Recorded events that were read into the worker. */
export type RecordingSummary = Period & {
  readonly requests: number
  /** Older requests of the range were left out. */
  readonly truncated: boolean
  /** Events that were not stored. */
  readonly lost: number
}

/** Times of the first and the last request; undefined: there are none. */
export type Period = { readonly fromMs?: number | undefined; readonly toMs?: number | undefined }

/** A log file that was read into the worker. */
export type LogSummary = Period & {
  readonly name: string
  readonly requests: number
  readonly lines: number
  /** Requests with the status 429. */
  readonly refused: number
  readonly malformed: number
  /** The first malformed lines. */
  readonly reported: readonly MalformedLine[]
}

/** Tasks of a worker: arguments and results. */
export type Tasks = {
  /** Reads recorded events from this URL, for the other tasks. Progress: bytes so far. */
  record: { readonly ask: string; readonly answer: RecordingSummary }
  /** Reads a log file: the other tasks use it instead, until it is closed. Progress: share of the file. */
  open: { readonly ask: File; readonly answer: LogSummary }
  close: { readonly ask: undefined; readonly answer: undefined }
  simulate: {
    readonly ask: { readonly rules: readonly PlainRule[]; readonly against: readonly PlainRule[] }
    readonly answer: ReplayResult
  }
  match: { readonly ask: { readonly rule: PlainRule }; readonly answer: Matches }
  profile: { readonly ask: { readonly rule: PlainRule; readonly windowSeconds: number }; readonly answer: Profile }
}
export type TaskName = keyof Tasks

export type Matched = {
  readonly atMs: number
  readonly client: string
  readonly method: string | undefined
  readonly path: string | undefined
  readonly refused: boolean
}

export type Matches = {
  readonly total: number
  readonly matched: number
  readonly refused: number
  readonly clients: number
  /** The newest, newest first. */
  readonly newest: readonly Matched[]
}

/** Requests of the busiest key per window of the rule. */
export type Profile = { readonly points: readonly { readonly atMs: number; readonly units: number }[] }

export type Question = { readonly id: number; readonly task: TaskName; readonly ask: unknown }
export type Reply = {
  readonly id: number
  readonly answer?: unknown
  readonly error?: string
  /** Status and code of a problem of the service. */
  readonly problem?: { readonly status: number; readonly code: string }
  /** While the task runs; the answer follows. */
  readonly progress?: number
}
