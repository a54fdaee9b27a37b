// Model of the quota filter of Envoy 1.40, for one bucket: envoy-quotas.test.ts compares it with the real one.

import type { FakeClock } from 'sluice/testing'
import type { Call, StreamInput } from '../../src/grpc/method.ts'
import { ProtobufReader, ProtobufWriter } from '../../src/grpc/protobuf.ts'
import type { QuotaService } from '../../src/grpc/rlqs/quota-service.ts'

type Assigned = { max: number; fill: number; seconds: number; blanket: number | undefined; ttl: number }

export const REPORT_MS = 5000

/** Reports and assignments arrive one step after they were sent. */
export class Envoy {
  readonly #clock: FakeClock
  readonly #input: StreamInput
  readonly assignments: Assigned[] = []
  passed = 0
  denied = 0
  /** Requests that passed with a token. */
  byToken = 0
  abandoned = 0
  #unreported = { allowed: 0, denied: 0 }
  readonly #inbox: Uint8Array[] = []
  #tokens = 0
  #filledMs = 0
  #current: Assigned | undefined
  #endMs = 0
  #isSubscribed = false
  #reportMs: number
  connected = true

  /** `phaseMs`: when its timer for reports started. */
  constructor(service: Pick<QuotaService, 'method'>, clock: FakeClock, phaseMs = 0) {
    this.#clock = clock
    this.#reportMs = clock.nowUs() / 1000 + phaseMs
    if (service.method.kind !== 'stream') throw new Error('not a stream')
    const call = { path: service.method.path, metadata: () => undefined, timeoutMs: undefined } as unknown as Call
    this.#input = service.method.open(call, {
      write: (message) => {
        if (this.connected) this.#inbox.push(Uint8Array.from(message))
        return true
      },
      drained: async () => {},
      end: () => {},
      fail: (error) => {
        throw error
      },
    })
  }

  /** Whether it passed with a token. */
  async request(): Promise<boolean> {
    const nowMs = this.#clock.nowUs() / 1000
    const { blanket = undefined } = this.#current ?? {}
    let allowed = true // no_assignment_behavior and the fallback of these tests
    let byToken = false
    if (this.#current !== undefined && nowMs < this.#endMs) {
      if (blanket !== undefined) allowed = blanket === 0
      else {
        this.#fill(nowMs)
        byToken = allowed = this.#tokens >= 1
        if (allowed) this.#tokens -= 1
      }
    }
    this.#unreported[allowed ? 'allowed' : 'denied'] += 1
    if (allowed) this.passed += 1
    else this.denied += 1
    if (byToken) this.byToken += 1
    if (!this.#isSubscribed) {
      this.#isSubscribed = true
      if (this.connected) await this.#report() // a new bucket is reported at once
    }
    return byToken
  }

  /** Applies what has arrived, and reports every 5 s. */
  async step(): Promise<void> {
    for (const message of this.#inbox.splice(0)) this.#receive(message)
    if (this.#clock.nowUs() / 1000 < this.#reportMs) return
    this.#reportMs += REPORT_MS
    if (this.connected && this.#isSubscribed) await this.#report()
  }

  async #report(): Promise<void> {
    const { allowed, denied } = this.#unreported
    this.#unreported = { allowed: 0, denied: 0 }
    const writer = new ProtobufWriter().string(1, 'edge')
    writer.message(2, (usage) => {
      usage.message(1, (id) => id.message(1, (entry) => entry.string(1, 'tenant').string(2, 'acme')))
      usage.uint(3, allowed).uint(4, denied)
    })
    await this.#input.message(writer.finish())
  }

  disconnect(): void {
    this.connected = false
    this.#input.cancel()
  }

  #fill(nowMs: number): void {
    const { max = 0, fill = 0, seconds = 1 } = this.#current ?? {}
    this.#tokens = Math.min(max, this.#tokens + ((nowMs - this.#filledMs) * fill) / (seconds * 1000))
    this.#filledMs = nowMs
  }

  /** Compares, converts and fills token buckets as Envoy 1.40 does. */
  #receive(message: Uint8Array): void {
    for (const assigned of readAssignments(message)) {
      const nowMs = this.#clock.nowUs() / 1000
      if (assigned === 'abandoned') {
        this.abandoned += 1
        this.#current = undefined
        this.#isSubscribed = false
        this.#unreported = { allowed: 0, denied: 0 }
        continue
      }
      this.assignments.push(assigned)
      const before = this.#current
      this.#endMs = nowMs + assigned.ttl * 1000
      const hadTokens = before !== undefined && before.blanket === undefined
      const hasTokens = assigned.blanket === undefined
      if (hadTokens && hasTokens && before.max === assigned.max && before.fill === assigned.fill) continue
      if (hadTokens) this.#fill(nowMs)
      const share = hadTokens ? this.#tokens / before.max : 1
      this.#current = assigned
      this.#tokens = Math.floor(share * assigned.max)
      this.#filledMs = nowMs
    }
  }
}

function readAssignments(message: Uint8Array): (Assigned | 'abandoned')[] {
  const all: (Assigned | 'abandoned')[] = []
  const seconds = (reader: ProtobufReader) => {
    let value = 0
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 1) value = reader.uint()
      else reader.skip()
    }
    return value
  }
  const bucket = (reader: ProtobufReader, into: Assigned) => {
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 1) into.max = reader.uint()
      else if (field === 2) into.fill = seconds(reader.message())
      else if (field === 3) into.seconds = seconds(reader.message())
    }
  }
  const strategy = (reader: ProtobufReader, into: Assigned) => {
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 1) into.blanket = reader.uint()
      else if (field === 3) bucket(reader.message(), into)
      else throw new Error(`strategy ${field} is not supported by Envoy`)
    }
  }
  const reader = new ProtobufReader(message)
  while (reader.next() !== 0) {
    const action = reader.message()
    const assigned: Assigned = { max: 0, fill: 0, seconds: 0, blanket: undefined, ttl: 0 }
    let abandoned = false
    for (let field = action.next(); field !== 0; field = action.next()) {
      if (field === 2) {
        const nested = action.message()
        for (let inner = nested.next(); inner !== 0; inner = nested.next()) {
          if (inner === 2) assigned.ttl = seconds(nested.message())
          else if (inner === 3) strategy(nested.message(), assigned)
          else nested.skip()
        }
      } else if (field === 3) {
        abandoned = true
        action.skip()
      } else action.skip()
    }
    all.push(abandoned ? 'abandoned' : assigned)
  }
  return all
}
