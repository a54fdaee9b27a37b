// Logs how many checks on_fail decided, and why: one line a minute while any happened, the first one at once. The
// supervisor logs for all workers of a node.

import type { Log } from '../log.ts'
import type { PolicyReasonCounts } from '../metrics/service-metrics.ts'

const POLL_MS = 1000
const LINE_MS = 60_000

/** `totals`: of the node, since its start. Returns a function that logs the rest and stops. */
export function logPolicyDecisions(totals: () => PolicyReasonCounts, log: Log): () => void {
  let logged: PolicyReasonCounts = {}
  let loggedMs = Number.NEGATIVE_INFINITY
  const write = () => {
    const latest = totals()
    const reasons = since(logged, latest)
    const decisions = Object.values(reasons).reduce((sum, count) => sum + count, 0)
    if (decisions === 0) return
    log.event('on_fail_decided', { decisions, reasons })
    logged = latest
    loggedMs = performance.now()
  }
  let timer: NodeJS.Timeout
  const poll = () => {
    if (performance.now() - loggedMs >= LINE_MS) write()
    timer = setTimeout(poll, POLL_MS).unref()
  }
  poll()
  return () => {
    clearTimeout(timer)
    write()
  }
}

function since(before: PolicyReasonCounts, latest: PolicyReasonCounts): PolicyReasonCounts {
  const grown = Object.entries(latest).map(([reason, count]) => {
    return [reason, count - (before[reason as keyof PolicyReasonCounts] ?? 0)] as const
  })
  return Object.fromEntries(grown.filter(([, count]) => count > 0))
}

/** Adds up the totals of several workers. */
export function sumReasons(all: Iterable<PolicyReasonCounts>): PolicyReasonCounts {
  const sums: Record<string, number> = {}
  for (const counts of all) {
    for (const [reason, count] of Object.entries(counts)) sums[reason] = (sums[reason] ?? 0) + count
  }
  return sums
}
