// Decisions that every node can find: refusals, and admissions that have a name. A check only leaves a note, which
// never waits and never fails; notes are written together, a moment later. Their number is bounded twice: so many a
// second, the others are dropped and counted; and so many slots in all, where the newest replaces an older one.

import { createHash } from 'node:crypto'
import type { Traced } from './decision-trail.ts'

export type SlotText = { readonly slot: number; readonly text: string }

/** Where they are kept, for all nodes. */
export type DecisionSlots = {
  putMany(texts: readonly SlotText[]): Promise<void>
  get(slot: number): Promise<string | undefined>
}

/** A decision as it is told: what else it has does not matter here. */
export type Described = { readonly request_id: string; readonly at: string; readonly limits: readonly unknown[] }

/** About a kilobyte each. */
export const DECISION_SLOTS: number = 2 ** 14
export const DECISIONS_KEPT_MS = 3_600_000
const FLUSH_MS = 100
/** Every FLUSH_MS: a flood of refusals must not become a flood of Redis or the database. */
const FLUSHED_MAX = 50
const PENDING_MAX = 1000
/** A request may meet hundreds of limits. */
const LIMITS_MAX = 10

export class SharedDecisions {
  written = 0
  dropped = 0
  readonly #slots: DecisionSlots
  readonly #describe: (traced: Traced) => Described
  #pending: Traced[] = []
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> | undefined

  constructor(slots: DecisionSlots, describe: (traced: Traced) => Described) {
    this.#slots = slots
    this.#describe = describe
  }

  share(traced: Traced): void {
    if (this.#pending.length >= PENDING_MAX) {
      this.dropped += 1
      return
    }
    this.#pending.push(traced)
    this.#timer ??= setTimeout(() => this.#flushLater(), FLUSH_MS).unref()
  }

  /** Rejects when it cannot be known. */
  async find(requestId: string): Promise<Described | undefined> {
    const text = await this.#slots.get(slotOf(requestId))
    const found = text === undefined ? undefined : (JSON.parse(text) as Described)
    return found?.request_id === requestId ? found : undefined // the slot may be that of another one by now
  }

  /** Writes what is pending, once. */
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

  async #write(batch: readonly Traced[]): Promise<void> {
    if (batch.length === 0) return
    const bySlot = new Map(batch.map((traced) => this.#slotText(traced)).map((one) => [one.slot, one]))
    try {
      await this.#slots.putMany([...bySlot.values()])
      this.written += batch.length
    } catch {
      this.dropped += batch.length // whoever keeps them is away, and says so elsewhere
    }
  }

  #slotText(traced: Traced): SlotText {
    const { limits, ...told } = this.#describe(traced)
    const text = JSON.stringify({ ...told, limits: limits.slice(0, LIMITS_MAX) })
    return { slot: slotOf(told.request_id), text }
  }
}

function slotOf(requestId: string): number {
  return createHash('sha256').update(requestId).digest().readUInt32LE(0) % DECISION_SLOTS
}
