// Termination signals. The first SIGTERM or SIGINT starts a graceful shutdown; the second one exits immediately.

import { constants } from 'node:os'

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
