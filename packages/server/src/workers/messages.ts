// Messages between the workers of a node and their supervisor, over the IPC channel of node:cluster.

import type { PolicyReasonCounts } from '../metrics/service-metrics.ts'

/** Worker → supervisor. */
export type FromWorker =
  /** Sent once at the start; the reply is `joined`. */
  | { readonly sluice: 'join' }
  /** Requests the answers of all workers; the reply is `gathered`. */
  | ({ readonly sluice: 'gather'; readonly id: number; readonly deadlineMs: number } & Question)
  | { readonly sluice: 'answer'; readonly id: number; readonly answer: unknown }
  /** Unsolicited metrics, so that a crashed worker leaves recent totals behind. */
  | { readonly sluice: 'report'; readonly report: string; readonly policyReasons: PolicyReasonCounts }

/** Supervisor → worker. */
export type FromSupervisor =
  | { readonly sluice: 'joined'; readonly workers: number; readonly kept: readonly Kept[] }
  | ({ readonly sluice: 'ask'; readonly id: number } & Question)
  | { readonly sluice: 'gathered'; readonly id: number; readonly gathered: Gathered<unknown> }

export type Question = {
  readonly topic: string
  readonly payload?: unknown
  /** The newest payload of each key is also sent to workers that start later, unless it is null. */
  readonly key?: string | undefined
}

export type Kept = Question & { readonly key: string }

export type Gathered<T> = {
  readonly answers: readonly T[]
  /** Workers that did not answer within the deadline. */
  readonly silent: number
}

/** Topics that the supervisor handles itself. */
export const METRICS_TOPIC = 'metrics'
export const LEADER_TOPIC = 'leader'

export function isOurs<M extends FromWorker | FromSupervisor>(message: unknown): message is M {
  return typeof message === 'object' && message !== null && 'sluice' in message
}
