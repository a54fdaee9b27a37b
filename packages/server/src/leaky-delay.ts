// The wait that a leaky bucket imposes on an admitted request: over at once when its client leaves.

import type { ServerResponse } from 'node:http'

const TIMER_MS_MAX = 2 ** 31 - 1

type Response = Pick<ServerResponse, 'once' | 'off' | 'destroyed'>

/** False: the client has left, and nobody waits for an answer. */
export function leakyDelay(delayMs: number, response: Response): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = () => {
      clearTimeout(timer)
      response.off('close', settle)
      resolve(!response.destroyed)
    }
    const timer = setTimeout(settle, Math.min(delayMs, TIMER_MS_MAX))
    response.once('close', settle)
  })
}
