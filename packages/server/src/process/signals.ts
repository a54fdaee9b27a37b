// Termination signals. The first SIGTERM or SIGINT starts a graceful shutdown, which has a time limit; the second one
// exits immediately.

import { constants } from 'node:os'
import { STOP_MS_MAX } from '../settings/deadlines.ts'

export type TerminationSignal = {
  readonly name: NodeJS.Signals
  /** SIGTERM comes from an orchestrator, whose load balancers need time to notice; Ctrl-C should not wait. */
  readonly drains: boolean
}

export function terminationSignal(): Promise<TerminationSignal> {
  return new Promise((resolve) => {
    let received = false
    const handle = (name: NodeJS.Signals) => {
      if (received) process.exit(128 + constants.signals[name])
      received = true
      resolve({ name, drains: name === 'SIGTERM' })
    }
    process.on('SIGTERM', handle)
    process.on('SIGINT', handle)
  })
}

/** Runs `force` if the process still works on something when the drain is over for `ms`. */
export async function limitStop(
  signal: Promise<TerminationSignal>,
  drainMs: number,
  force: () => void,
  ms: number = STOP_MS_MAX,
): Promise<void> {
  const { drains } = await signal
  setTimeout(force, (drains ? drainMs : 0) + ms).unref()
}
