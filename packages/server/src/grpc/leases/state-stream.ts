// Streams the state that remote nodes follow: at the start and after every change. All streams share one timer, and one
// encoded message per change. A slow reader skips states: once it has read a message, it gets the current state.

import type { Limiter, RemoteState } from 'sluice'
import { decodeReport, encodeState, exceptedKeys, ProtobufError } from 'sluice/remote-wire'
import { GrpcError, type StreamInput, type StreamOutput } from '../method.ts'

/** Longest time between a change and its message. */
const POLL_MS = 100

/** Interval at which tokens of open streams are verified. */
const VERIFY_MS = 1000

type Follower = {
  /** The last state sent, and whether the node has still to read it. */
  edition: number
  isBehind: boolean
  /** As the node reported: it does not decide by the newest rules. */
  isDegraded: boolean
  isStillValid(): boolean
}

export class StateStreams {
  readonly #limiter: Pick<Limiter, 'remote'>
  readonly #pollMs: number
  readonly #followers = new Map<StreamOutput, Follower>()
  readonly #seeds = crypto.getRandomValues(new Uint32Array(2))
  #encoded: { readonly edition: number; readonly message: Uint8Array } | undefined
  #timer: NodeJS.Timeout | undefined
  #verifiedMs = performance.now()

  constructor(limiter: Pick<Limiter, 'remote'>, pollMs: number = POLL_MS) {
    this.#limiter = limiter
    this.#pollMs = pollMs
  }

  get size(): number {
    return this.#followers.size
  }

  /** Nodes that report to be degraded. */
  get degraded(): number {
    return [...this.#followers.values()].filter(({ isDegraded }) => isDegraded).length
  }

  open(output: StreamOutput, isStillValid: () => boolean = () => true): StreamInput {
    this.#timer ??= this.#pollLater()
    const follower: Follower = { edition: -1, isBehind: false, isDegraded: false, isStillValid }
    this.#followers.set(output, follower)
    this.#send(output, follower)
    const stop = () => this.#remove(output)
    return {
      message: (message) => {
        try {
          follower.isDegraded = decodeReport(message).degraded !== ''
        } catch (error) {
          if (!(error instanceof ProtobufError)) throw error
          stop()
          output.fail(new GrpcError('invalid_argument', `WatchRequest: ${error.message}`))
        }
      },
      end: () => {
        stop()
        output.end()
      },
      cancel: stop,
    }
  }

  close(): void {
    for (const output of this.#followers.keys()) output.end()
    this.#followers.clear()
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  #remove(output: StreamOutput): void {
    this.#followers.delete(output)
    if (this.#followers.size > 0) return
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
    this.#verify()
    const { edition } = this.#current()
    for (const [output, follower] of this.#followers) {
      if (follower.edition !== edition && !follower.isBehind) this.#send(output, follower)
    }
  }

  /** Tokens expire and are revoked during a stream. */
  #verify(): void {
    const nowMs = performance.now()
    if (nowMs - this.#verifiedMs < VERIFY_MS) return
    this.#verifiedMs = nowMs
    for (const [output, follower] of this.#followers) {
      if (follower.isStillValid()) continue
      this.#remove(output)
      output.fail(new GrpcError('unauthenticated', 'the token of this stream was revoked or has expired'))
    }
  }

  #send(output: StreamOutput, follower: Follower): void {
    const { edition, message } = this.#current()
    follower.edition = edition
    if (output.write(message)) return
    follower.isBehind = true
    void output.drained().then(() => {
      follower.isBehind = false
    })
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
