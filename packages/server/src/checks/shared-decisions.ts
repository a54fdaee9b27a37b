// Decisions that every node can find: refusals, and admissions whose answer had an id. A check only queues its
// decision, which never blocks or fails; batches are written every FLUSH_MS. Bounded by a maximum per batch (the rest
// is dropped and counted) and by a ring of positions, in which the newest decision overwrites an older one.

import { createHash } from 'node:crypto'
import type { RecordedDecision } from './decision-history.ts'

export type PositionText = { readonly position: number; readonly text: string }

/** Ring of decisions shared by all nodes, in Redis or the database. */
export type DecisionRing = {
  putMany(texts: readonly PositionText[]): Promise<void>
  get(position: number): Promise<string | undefined>
}

/** Decision as the API shows it, with the fields that are needed here. */
export type Described = { readonly request_id: string; readonly at: string; readonly limits: readonly unknown[] }

/** Each takes about a kilobyte. */
export const DECISION_POSITIONS: number = 2 ** 14
export const DECISIONS_KEPT_MS = 3_600_000
const FLUSH_MS = 100
/** Per FLUSH_MS: protects Redis or the database from a flood of refusals. */
const FLUSHED_MAX = 50
const PENDING_MAX = 1000
/** A request may match hundreds of limits. */
const LIMITS_MAX = 10

export class SharedDecisions {
  written = 0
  dropped = 0
  readonly #ring: DecisionRing
  readonly #describe: (recorded: RecordedDecision) => Described
  #pending: RecordedDecision[] = []
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> | undefined

  constructor(ring: DecisionRing, describe: (recorded: RecordedDecision) => Described) {
    this.#ring = ring
    this.#describe = describe
  }

  share(recorded: RecordedDecision): void {
    if (this.#pending.length >= PENDING_MAX) {
      this.dropped += 1
      return
    }
    this.#pending.push(recorded)
    this.#timer ??= setTimeout(() => this.#flushLater(), FLUSH_MS).unref()
  }

  /** Rejects when the ring is unreachable. */
  async find(requestId: string): Promise<Described | undefined> {
    const text = await this.#ring.get(positionOf(requestId))
    const found = text === undefined ? undefined : (JSON.parse(text) as Described)
    return found?.request_id === requestId ? found : undefined // the position may hold another decision by now
  }

  /** Flushes the queue once. */
  async close(): Promise<void> {
    clearTimeout(this.#timer)
    await this.#flushing
    await this.#write(this.#pending.splice(0))
  }

  #flushLater(): void {
    this.#flushing = this.#write(this.#pending.splice(0, FLUSHED_MAX)).then(() => {
      this.#timer = this.#pending.length === 0 ? undefined : setTimeout(() => this.#flushLater(), FLUSH_MS).unref()
    })
  }

  async #write(batch: readonly RecordedDecision[]): Promise<void> {
    if (batch.length === 0) return
    const byPosition = new Map(batch.map((recorded) => this.#positionText(recorded)).map((one) => [one.position, one]))
    try {
      await this.#ring.putMany([...byPosition.values()])
      this.written += batch.length
    } catch {
      this.dropped += batch.length // the store or the database logs the outage
    }
  }

  #positionText(recorded: RecordedDecision): PositionText {
    const { limits, ...rest } = this.#describe(recorded)
    const text = JSON.stringify({ ...rest, limits: limits.slice(0, LIMITS_MAX) })
    return { position: positionOf(rest.request_id), text }
  }
}

function positionOf(requestId: string): number {
  return createHash('sha256').update(requestId).digest().readUInt32LE(0) % DECISION_POSITIONS
}
