// How the process is asked to end. The first SIGTERM or SIGINT is to be obeyed in order; the second ends it at once.

import { constants } from 'node:os'

export type EndSignal = {
  readonly name: NodeJS.Signals
  /** An orchestrator that sends SIGTERM has load balancers to tell; a person who presses Ctrl-C does not wait. */
  readonly drains: boolean
}

export function endSignal(): Promise<EndSignal> {
  return new Promise((resolve) => {
    let asked = false
    const obey = (name: NodeJS.Signals) => {
      if (asked) process.exit(128 + constants.signals[name])
      asked = true
      resolve({ name, drains: name === 'SIGTERM' })
    }
    process.on('SIGTERM', obey)
    process.on('SIGINT', obey)
  })
}
