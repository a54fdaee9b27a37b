// Waits for the delay that a leaky bucket imposes on an admitted request; ends early when the client disconnects.

import type { ServerResponse } from 'node:http'

const TIMER_MS_MAX = 2 ** 31 - 1

export function leakyDelay(delayMs: number, response: Pick<ServerResponse, 'once' | 'off'>): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      clearTimeout(timer)
      response.off('close', settle)
      resolve()
    }
    const timer = setTimeout(settle, Math.min(delayMs, TIMER_MS_MAX))
    response.once('close', settle)
  })
}
