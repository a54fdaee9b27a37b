// Timeouts and errors for a Redis that is unreachable or silent. Clients reconnect by themselves, and their promises
// stay pending until then, so every wait is bounded here, and errors carry the reason for the outage.

import { systemTimers } from '../clock.ts'
import { STALL_MS } from '../failure/deadline.ts'

/** Timeout of one-off requests, for a metric, and of the first attempt to connect. */
const TIMEOUT_MS = 2000

/**
 * Timeouts of the store's own connections, whatever options the client has. A silent connection is closed, because
 * after a network partition TCP retransmits only after tens of seconds.
 */
export const SILENT_MS_MAX = 2000
export const CONNECT_MS_MAX = 2000

const RECONNECT_MS_MIN = 125
const RECONNECT_MS_MAX = 250

/** Pause before the next attempt to connect, jittered so that a fleet does not reconnect all at once. */
export function reconnectPauseMs(): number {
  const [random = 0] = crypto.getRandomValues(new Uint32Array(1))
  return RECONNECT_MS_MIN + (random % (RECONNECT_MS_MAX - RECONNECT_MS_MIN))
}

/** The same limits for node-redis. Its socket timeout also closes idle connections, so it has to send pings. */
export const PING_MS = 500
export const SOCKET_LIMITS: Readonly<Record<string, unknown>> = {
  connectTimeout: CONNECT_MS_MAX,
  socketTimeout: SILENT_MS_MAX,
  reconnectStrategy: reconnectPauseMs,
}

/** Rejects if the promise does not settle in time. */
export function withTimeout<T>(promise: Promise<T>, ms: number = TIMEOUT_MS): Promise<T> {
  let stop: (() => void) | undefined
  const late = new Promise<never>((_resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no reply within ${ms} ms`)), ms)
    stop = () => clearTimeout(timer)
  })
  return Promise.race([promise, late]).finally(stop)
}

/**
 * Settles after the first attempt to connect: successful, failed or timed out. The client keeps trying. A stall of this
 * process counts as STALL_MS.
 */
export function attempt(connected: Promise<unknown>): Promise<void> {
  return new Promise((resolve) => {
    let leftMs = TIMEOUT_MS
    const settle = () => {
      stop()
      resolve()
    }
    const stop = systemTimers.every(STALL_MS, () => {
      leftMs -= STALL_MS
      if (leftMs <= 0) settle()
    })
    connected.then(settle, settle)
  })
}

/** Returns a function that creates the error for a command without a connection, with the client's last error. */
export function watchErrors(
  client: { on(event: 'error', listener: (error: Error & { lastNodeError?: Error }) => void): unknown },
  message: string,
): () => Error {
  let last: Error | undefined
  client.on('error', (error) => {
    last = error.lastNodeError ?? error
  })
  return () => new Error(last === undefined ? message : `${message}: ${last.message}`)
}
