// Opens proposals and rollouts of a node. They need the rules in a database.

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type { Limiter } from 'sluice'
import type { Database } from '../db/database.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { Evaluator } from '../rollouts/evaluator.ts'
import { ProposalStore } from '../rollouts/proposal-store.ts'
import { ROLLOUT_TIMING, RolloutNode, type RolloutTiming } from '../rollouts/rollout-node.ts'
import type { LiveRules } from '../rules/live-rules.ts'

export type OpenRollouts = {
  /** Undefined without a database. */
  readonly proposals: ProposalStore | undefined
  readonly node: RolloutNode | undefined
  close(): Promise<void>
}

export type RolloutsDeps = {
  readonly database: Database | undefined
  readonly limiter: Limiter
  readonly live: LiveRules
  readonly metrics: Metrics
  readonly log: Log
  /** For tests. */
  readonly timing?: RolloutTiming | undefined
}

/** The leader lock expires after this many intervals. */
const LOCK_TICKS = 3

/** Resolves once the node has applied the rollouts of the database, or the database does not answer. */
export async function openRollouts(deps: RolloutsDeps): Promise<OpenRollouts> {
  const { database, limiter, live, metrics, log, timing = ROLLOUT_TIMING } = deps
  if (database === undefined) return { proposals: undefined, node: undefined, close: async () => {} }
  const name = `${hostname()}:${process.pid}:${randomBytes(4).toString('hex')}` // in containers the pid is always 1
  const node = new RolloutNode({ database, limiter, live, metrics, log, node: name, timing })
  const proposals = new ProposalStore(database, node)
  const evaluator = new Evaluator({ database, proposals, holder: name, lockMs: LOCK_TICKS * timing.tickMs, log })
  await node.start(evaluator)
  return { proposals, node, close: () => node.stop() }
}
