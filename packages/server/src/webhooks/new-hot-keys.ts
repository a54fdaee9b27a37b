// Reports keys that became hot. Bounded: a few events per minute, and a cap on remembered keys.

import type { WebhookEvent } from './webhooks.ts'

export const NEW_HOT_KEYS = { perMinute: 5, forgetMs: 600_000, rememberedMax: 10_000 } as const

export type ReportedKey = {
  readonly rule_id: string
  readonly name: string
  readonly key_hash: string
  readonly checks_per_second: number
  readonly share: number
}

const MINUTE_MS = 60_000

export class NewHotKeys {
  /** Last hot time per reported key, oldest first. */
  readonly #lastHotMs = new Map<string, number>()
  /** Times of the events of the last minute. */
  #sentMs: number[] = []
  #hasBaseline = false

  /** `hotKeys`: hottest first. Keys beyond the cap stay new: they are reported later, if they are still hot. */
  next(hotKeys: readonly ReportedKey[], nowMs: number): WebhookEvent[] {
    this.#forget(nowMs)
    const fresh = hotKeys.filter((key) => !this.#lastHotMs.has(idOf(key)))
    const room = this.#hasBaseline ? NEW_HOT_KEYS.perMinute - this.#sentMs.length : 0
    const sent = fresh.slice(0, room)
    const leftOut = new Set(this.#hasBaseline ? fresh.slice(room) : [])
    for (const key of hotKeys) if (!leftOut.has(key)) this.#remember(idOf(key), nowMs)
    for (const _ of sent) this.#sentMs.push(nowMs)
    this.#hasBaseline = true
    return sent.map((key) => ({ type: 'hot_key.found', data: dataOf(key, leftOut.size) }))
  }

  #remember(id: string, nowMs: number): void {
    this.#lastHotMs.delete(id)
    this.#lastHotMs.set(id, nowMs)
  }

  #forget(nowMs: number): void {
    this.#sentMs = this.#sentMs.filter((ms) => ms > nowMs - MINUTE_MS)
    for (const [id, ms] of this.#lastHotMs) {
      const isOver = this.#lastHotMs.size > NEW_HOT_KEYS.rememberedMax
      if (ms >= nowMs - NEW_HOT_KEYS.forgetMs && !isOver) break
      this.#lastHotMs.delete(id)
    }
  }
}

function idOf({ rule_id, name, key_hash }: ReportedKey): string {
  return JSON.stringify([rule_id, name, key_hash])
}

function dataOf(key: ReportedKey, left_out: number): WebhookEvent['data'] {
  const { rule_id, name, key_hash } = key
  const [checks_per_second, share] = [Math.round(key.checks_per_second), Number(key.share.toFixed(3))]
  return { rule_id, name, key_hash, checks_per_second, share, left_out }
}
