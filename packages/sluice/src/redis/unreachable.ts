// A Redis that cannot be reached, or that accepts a connection and then says nothing: nobody waits for it for ever, and
// who is refused by it is told why. Clients go on trying by themselves, and their promises stay open for as long.

import { randomInt } from 'node:crypto'

/** What is asked once, at the start or for a metric, may take so long. */
const PATIENCE_MS = 2000

/**
 * Limits on own connections, whatever the client was created with. A connection that has not answered for so long is
 * closed: after a network partition the kernel would send what was lost again only after tens of seconds.
 */
export const SILENT_MS_MAX = 2000
export const CONNECT_MS_MAX = 2000

const RECONNECT_MS_MIN = 125
const RECONNECT_MS_MAX = 250

/** Pause before the next attempt to connect: jittered, or a fleet would come back in one moment. */
export function reconnectPauseMs(): number {
  return randomInt(RECONNECT_MS_MIN, RECONNECT_MS_MAX)
}

/** The same for the socket of a node-redis client. It closes idle connections as well, so it has to send pings. */
export const PING_MS = 500
export const SOCKET_LIMITS: Readonly<Record<string, unknown>> = {
  connectTimeout: CONNECT_MS_MAX,
  socketTimeout: SILENT_MS_MAX,
  reconnectStrategy: reconnectPauseMs,
}

/** The same promise, rejected when it takes too long. */
export function inPatience<T>(asked: Promise<T>, ms: number = PATIENCE_MS): Promise<T> {
  let stop: (() => void) | undefined
  const late = new Promise<never>((_resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms)
    stop = () => clearTimeout(timer)
  })
  return Promise.race([asked, late]).finally(stop)
}

/** When an attempt to connect has ended, well or not. The client goes on by itself if it has not. */
export function attempt(connected: Promise<unknown>): Promise<void> {
  return inPatience(connected).then(ignore, ignore)
}

/** A client says once why it has no connection, and of each command only that there is none: who is told wants both. */
export function watchErrors(
  client: { on(event: 'error', listener: (error: Error & { lastNodeError?: Error }) => void): unknown },
  said: string,
): () => Error {
  let last: Error | undefined
  client.on('error', (error) => {
    last = error.lastNodeError ?? error
  })
  return () => new Error(last === undefined ? said : `${said}: ${last.message}`)
}

function ignore(): void {}
