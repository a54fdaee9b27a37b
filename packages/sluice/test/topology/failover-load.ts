// Load on many users while their Redis changes hands, and what came of it for each of them.

import { createLimiter, type Limiter } from 'sluice'
import { type RedisClient, type RedisStore, redisStore } from 'sluice/redis'
import { onTestFinished, vi } from 'vitest'
import { compileLimit } from '../../src/algorithms/limit.ts'
import { SlotGroups } from '../../src/redis/slot-groups.ts'

export const LIMIT = 60

/** Nothing flows back, and nobody is admitted but by Redis. The log is a second key in the same slot. */
const SHARED = { scope: 'per_user', window_seconds: 366 * 86_400, consistency: 'strict', on_fail: 'closed' }
const RULES = [
  { rule_id: 'count', algorithm: 'fixed_window', limit: LIMIT, ...SHARED },
  { rule_id: 'log', algorithm: 'sliding_window_log', limit: 1000, ...SHARED },
]

/** Where the store keeps a user, with the secret that it has unless told otherwise. */
const GROUPS = new SlotGroups('sluice')
const USER_LIMIT = compileLimit({ id: 'count', fact: 'user', algorithm: 'fixed_window', units: 1, windowUs: 1_000_000 })

type Answer = { readonly atMs: number; readonly allowed: boolean; readonly byRedis: boolean }

export class FailoverLoad {
  readonly users: readonly string[]
  readonly store: RedisStore
  readonly limiter: Limiter
  readonly answers = new Map<string, Answer[]>()

  constructor(client: RedisClient, users: number) {
    this.users = Array.from({ length: users }, (_, index) => `user-${index}`)
    // Patient enough for a busy machine; a primary that is gone refuses connections at once.
    this.store = redisStore(client, { deadlineMs: 1000 })
    this.limiter = createLimiter({ rules: RULES, store: this.store })
    onTestFinished(() => this.limiter.close())
  }

  /** One request of each user. */
  async round(): Promise<void> {
    await Promise.all(
      this.users.map(async (user) => {
        const { allowed, source } = await this.limiter.check({ user })
        const answers = this.answers.get(user) ?? []
        answers.push({ atMs: performance.now(), allowed, byRedis: source !== 'policy' })
        this.answers.set(user, answers)
      }),
    )
  }

  async rounds(count: number): Promise<void> {
    for (let index = 0; index < count; index += 1) await this.round()
  }

  /** Goes on until Redis itself refuses everybody, which it does when it knows that the limit is reached. */
  async untilSpent(): Promise<void> {
    const spent = (user: string) => {
      const last = this.answers.get(user)?.at(-1)
      return last?.byRedis === true && !last.allowed
    }
    await vi.waitFor(
      async () => {
        await this.round()
        const left = this.users.filter((user) => !spent(user))
        if (left.length > 0) throw new Error(`${left.length} users are not refused by Redis yet`)
      },
      { timeout: 40_000, interval: 10 },
    )
  }

  admitted(user: string): number {
    return this.#of(user).filter(({ allowed }) => allowed).length
  }

  /** Admitted in the last `ms` before a moment: the most that a replica can have missed if it was so far behind. */
  admittedBefore(user: string, untilMs: number, ms: number): number {
    return this.#of(user).filter(({ allowed, atMs }) => allowed && atMs <= untilMs && atMs > untilMs - ms).length
  }

  refusedByPolicy(user: string): number {
    return this.#of(user).filter(({ byRedis }) => !byRedis).length
  }

  wasAlwaysRedis(user: string): boolean {
    return this.#of(user).every(({ byRedis }) => byRedis)
  }

  /** From a moment until Redis answered for good. */
  secondsToExact(users: readonly string[], fromMs: number): number {
    const lastPolicyMs = users.map((user) => this.#of(user).findLast(({ byRedis }) => !byRedis)?.atMs ?? fromMs)
    return Math.max(0, ...lastPolicyMs.map((ms) => ms - fromMs)) / 1000
  }

  #of(user: string): readonly Answer[] {
    return this.answers.get(user) ?? []
  }
}

export function slotOfUser(user: string): number {
  return GROUPS.slotOf({ limit: USER_LIMIT, owner: user })
}
