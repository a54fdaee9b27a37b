// Server-sent events. Bounds the number of streams of a process and of each token. A client that does not read misses
// events, and is then disconnected. A stream ends soon after the token or the session that opened it.

import type { ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Authenticator } from '../access/authenticator.ts'
import { TokenPlaces } from '../token-places.ts'

const STREAMS_MAX = 20
const STREAMS_PER_TOKEN_MAX = 5
/** Interval between checks of the caller. */
const CHECK_MS = 5000
/** Checks per heartbeat: proxies close connections without traffic. */
const CHECKS_PER_HEARTBEAT = 3
/** A client with more unread bytes misses events; after STALLED_MS it is disconnected. */
const UNREAD_BYTES_MAX = 1_000_000
const STALLED_MS = 30_000

export type EventStream = {
  /** Returns false if the event was dropped, because the client does not read. */
  send(name: string, data: unknown, id?: string): boolean
  /** `work` runs once, when the client or the node closes the stream. */
  onClose(work: () => void): void
}

export class EventStreams {
  readonly #authenticator: Authenticator
  readonly #open = new Set<ServerResponse>()
  readonly #places = new TokenPlaces({
    ...{ max: STREAMS_MAX, perTokenMax: STREAMS_PER_TOKEN_MAX },
    ...{ code: 'TOO_MANY_STREAMS', work: 'streams open', fix: 'close one of them' },
  })

  constructor(app: FastifyInstance, authenticator: Authenticator) {
    this.#authenticator = authenticator
    app.addHook('preClose', async () => {
      for (const response of this.#open) response.end()
    })
  }

  /** Throws if the token or the process has too many streams. The handler must return `reply` afterwards. */
  open({ caller }: FastifyRequest, reply: FastifyReply): EventStream {
    const free = this.#places.take(caller.id)
    const response = this.#start(reply)
    this.#open.add(response)
    const timer = everyCheck((count) => {
      if (!this.#authenticator.isStillValid(caller)) response.end()
      else if (count % CHECKS_PER_HEARTBEAT === 0 && response.writableLength === 0) response.write(': heartbeat\n\n')
    })
    onDisconnect(response, () => {
      timer.stop()
      this.#open.delete(response)
      free()
    })
    return { send: senderOf(response), onClose: (work) => onDisconnect(response, work) }
  }

  #start(reply: FastifyReply): ServerResponse {
    reply.hijack()
    const response = reply.raw
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    })
    response.write(': connected\n\n')
    return response
  }
}

/** Runs `work` once, when the connection has closed: at once if that was during the work before this call. */
export function onDisconnect(response: ServerResponse, work: () => void): void {
  if (response.destroyed) work()
  else response.once('close', work)
}

function senderOf(response: ServerResponse): EventStream['send'] {
  let stalledSince: number | undefined
  return (name, data, id) => {
    if (response.writableEnded || response.destroyed) return false
    if (response.writableLength > UNREAD_BYTES_MAX) {
      stalledSince ??= performance.now()
      if (performance.now() - stalledSince > STALLED_MS) response.destroy()
      return false
    }
    stalledSince = undefined
    // JSON has no raw line breaks, so one line is one event.
    response.write(`event: ${name}\n${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`)
    return true
  }
}

function everyCheck(work: (count: number) => void): { stop(): void } {
  let timer: NodeJS.Timeout
  let count = 0
  const later = () => {
    timer = setTimeout(() => {
      count += 1
      work(count)
      later()
    }, CHECK_MS).unref()
  }
  later()
  return { stop: () => clearTimeout(timer) }
}
