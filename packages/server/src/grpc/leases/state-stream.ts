// Streams the state that remote nodes follow: at the start and after every change. All streams share one timer, and one
// encoded message per change.

import type { Limiter, RemoteState } from 'sluice'
import { encodeState, exceptedKeys } from 'sluice/remote-wire'
import type { StreamInput, StreamOutput } from '../method.ts'

/** Longest time between a change and its message. */
const POLL_MS = 100

export class StateStreams {
  readonly #limiter: Pick<Limiter, 'remote'>
  readonly #pollMs: number
  readonly #outputs = new Map<StreamOutput, number>()
  readonly #seeds = crypto.getRandomValues(new Uint32Array(2))
  #encoded: { readonly edition: number; readonly message: Uint8Array } | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(limiter: Pick<Limiter, 'remote'>, pollMs: number = POLL_MS) {
    this.#limiter = limiter
    this.#pollMs = pollMs
  }

  get size(): number {
    return this.#outputs.size
  }

  open(output: StreamOutput): StreamInput {
    this.#timer ??= this.#pollLater()
    const { edition, message } = this.#current()
    this.#outputs.set(output, edition)
    output.write(message)
    const stop = () => this.#remove(output)
    return {
      message: () => {},
      end: () => {
        stop()
        output.end()
      },
      cancel: stop,
    }
  }

  close(): void {
    for (const output of this.#outputs.keys()) output.end()
    this.#outputs.clear()
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  #remove(output: StreamOutput): void {
    this.#outputs.delete(output)
    if (this.#outputs.size > 0) return
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  #pollLater(): NodeJS.Timeout {
    return setTimeout(() => {
      this.#timer = this.#pollLater()
      this.#poll()
    }, this.#pollMs).unref()
  }

  #poll(): void {
    const { edition, message } = this.#current()
    for (const [output, sent] of this.#outputs) {
      if (sent === edition) continue
      this.#outputs.set(output, edition)
      output.write(message)
    }
  }

  #current(): { readonly edition: number; readonly message: Uint8Array } {
    const { remote } = this.#limiter
    const { edition } = remote
    if (this.#encoded?.edition === edition) return this.#encoded
    this.#encoded = { edition, message: this.#encode(remote.state()) }
    return this.#encoded
  }

  #encode({ rules, layer, exceptedKeys: keys, ...state }: RemoteState): Uint8Array {
    const [first = 0, second = 0] = this.#seeds
    const excepted = exceptedKeys(keys, [first, second])
    return encodeState({ ...state, layer: layer ?? '', rules: JSON.stringify(rules), excepted })
  }
}
