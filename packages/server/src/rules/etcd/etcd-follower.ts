// Keeps up with the keys of a prefix. Every set it hands over is complete as of one revision, and the newest one always
// arrives: a watch only says when to read, and whatever ends a watch (a restart, a compaction, a broken connection, half
// a minute) is followed by another look at all keys before the next watch begins behind them.

import { randomInt } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { EtcdClient, EtcdRange } from './etcd-client.ts'

export type EtcdEvents = {
  /** The keys have changed. */
  changed(range: EtcdRange): void
  /** etcd cannot be asked, and is asked again later; or it can again. */
  troubled(error: Error): void
  recovered(): void
}

/** A connection that died without a word is noticed after this long. */
const WATCH_MS_MAX = 30_000
/** Between two watches; each failure in a row doubles it. Jittered, so that nodes do not come back at once. */
const RETRY_MS = { first: 100, longest: 5000 }

export class EtcdFollower {
  readonly #client: EtcdClient
  readonly #events: EtcdEvents
  readonly #stopped = new AbortController()
  #known: EtcdRange
  #troubled = false

  /** `known` is what was read last; changes since then are told. */
  constructor(client: EtcdClient, known: EtcdRange, events: EtcdEvents) {
    this.#client = client
    this.#known = known
    this.#events = events
  }

  /** Runs until `stop`. */
  async run(): Promise<void> {
    let failures = 0
    while (!this.#isStopped) {
      try {
        await this.#follow()
        failures = 0
      } catch (error) {
        failures += 1
        this.#trouble(error)
      }
      const ms = Math.min(RETRY_MS.first * 2 ** failures, RETRY_MS.longest)
      await pause(randomInt(ms / 2, ms), undefined, { signal: this.#stopped.signal }).catch(() => {})
    }
  }

  stop(): void {
    this.#stopped.abort()
  }

  get #isStopped(): boolean {
    return this.#stopped.signal.aborted
  }

  /** One look at all keys, then one watch to its end. */
  async #follow(): Promise<void> {
    const latest = await this.#client.read({ keysOnly: true })
    if (printOf(latest) === printOf(this.#known)) this.#known = { ...this.#known, revision: latest.revision }
    else this.#hand(await this.#client.read({ revision: latest.revision }))
    if (this.#troubled) this.#events.recovered()
    this.#troubled = false
    const signal = AbortSignal.any([this.#stopped.signal, AbortSignal.timeout(WATCH_MS_MAX)])
    try {
      for await (const revision of this.#client.watch(this.#known.revision + 1, signal)) {
        if (this.#isStopped) return
        this.#hand(await this.#client.read({ revision }))
      }
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  #hand(range: EtcdRange): void {
    if (this.#isStopped) return
    this.#known = range
    this.#events.changed(range)
  }

  #trouble(error: unknown): void {
    if (this.#troubled || this.#isStopped) return
    this.#troubled = true
    this.#events.troubled(error instanceof Error ? error : new Error(String(error)))
  }
}

/** A text that differs whenever the keys do. */
function printOf({ keys }: EtcdRange): string {
  return keys.map(({ key, modRevision }) => `${modRevision} ${key}`).join('\n')
}
