// Load of many users during a failover, and statistics per user.

import { createSentinel } from 'redis5'
import { createLimiter, type Limiter } from 'sluice'
import { type RedisClient, type RedisStore, redisStore } from 'sluice/redis'
import { onTestFinished, vi } from 'vitest'
import { compileLimit } from '../../src/algorithms/limit.ts'
import { SlotGroups } from '../../src/redis/slot-groups.ts'

export const LIMIT = 60
/** Long, for a busy machine; a dead primary refuses connections immediately. */
export const DEADLINE_MS = 1000

/** No refill during the test, and only Redis admits. The log is a second key in the same slot. */
const SHARED = { scope: 'per_user', window_seconds: 366 * 86_400, consistency: 'strict', on_fail: 'closed' }
const RULES = [
  { rule_id: 'count', algorithm: 'fixed_window', limit: LIMIT, ...SHARED },
  { rule_id: 'log', algorithm: 'sliding_window_log', limit: 1000, ...SHARED },
]

/** Slot groups with the default secret of the store. */
const GROUPS = new SlotGroups('sluice')
const USER_LIMIT = compileLimit({ id: 'count', fact: 'user', algorithm: 'fixed_window', units: 1, windowUs: 1_000_000 })

type Reply = {
  readonly atMs: number
  /** Undefined for a refusal cached by this node. */
  readonly tookMs: number | undefined
  readonly allowed: boolean
  readonly byRedis: boolean
}

export class FailoverLoad {
  readonly users: readonly string[]
  readonly store: RedisStore
  readonly limiter: Limiter
  readonly replies = new Map<string, Reply[]>()

  constructor(client: RedisClient, users: number) {
    this.users = Array.from({ length: users }, (_, index) => `user-${index}`)
    this.store = redisStore(client, { deadlineMs: DEADLINE_MS })
    this.limiter = createLimiter({ rules: RULES, store: this.store })
    onTestFinished(() => this.limiter.close())
  }

  /** Sends one request per user. */
  async round(): Promise<void> {
    await Promise.all(
      this.users.map(async (user) => {
        const sentMs = performance.now()
        const { allowed, source } = await this.limiter.check({ user })
        const replies = this.replies.get(user) ?? []
        const atMs = performance.now()
        const tookMs = source === 'lease' ? undefined : atMs - sentMs
        replies.push({ atMs, tookMs, allowed, byRedis: source !== 'policy' })
        this.replies.set(user, replies)
      }),
    )
  }

  async rounds(count: number): Promise<void> {
    for (let index = 0; index < count; index += 1) await this.round()
  }

  /** Repeats rounds until Redis refuses every user: all limits are reached. */
  async untilSpent(): Promise<void> {
    const spent = (user: string) => {
      const last = this.replies.get(user)?.at(-1)
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

  /** Units admitted in the last `ms` before `untilMs`: the most that a replica with that lag can have missed. */
  admittedBefore(user: string, untilMs: number, ms: number): number {
    return this.#of(user).filter(({ allowed, atMs }) => allowed && atMs <= untilMs && atMs > untilMs - ms).length
  }

  refusedByPolicy(user: string): number {
    return this.#of(user).filter(({ byRedis }) => !byRedis).length
  }

  wasAlwaysRedis(user: string): boolean {
    return this.#of(user).every(({ byRedis }) => byRedis)
  }

  /** Time from `fromMs` until the last decision by on_fail. */
  secondsToExact(users: readonly string[], fromMs: number): number {
    const lastPolicyMs = users.map((user) => this.#of(user).findLast(({ byRedis }) => !byRedis)?.atMs ?? fromMs)
    return Math.max(0, ...lastPolicyMs.map((ms) => ms - fromMs)) / 1000
  }

  /** 99th percentile of the latency of these users between `fromMs` and `untilMs`. */
  p99Ms(users: readonly string[], fromMs: number, untilMs: number): number {
    const replies = users.flatMap((user) => this.#of(user)).filter(({ atMs }) => atMs >= fromMs && atMs < untilMs)
    const took = replies.flatMap(({ tookMs }) => tookMs ?? []).sort((one, other) => one - other)
    return took[Math.ceil(0.99 * took.length) - 1] ?? 0
  }

  #of(user: string): readonly Reply[] {
    return this.replies.get(user) ?? []
  }
}

export type OnTestFinished = (clean: () => void | Promise<void>) => void

/** node-redis 5 cannot duplicate its Sentinel client, so the caller connects it. */
export async function connectedSentinel5(
  sentinelRootNodes: { host: string; port: number }[],
  name: string,
  atEnd: OnTestFinished = onTestFinished,
): Promise<RedisClient> {
  const client = createSentinel({ sentinelRootNodes, name })
  client.on('error', () => {}) // a sentinel that does not answer
  atEnd(() => void client.destroy())
  await client.connect()
  return client
}

export function slotOfUser(user: string): number {
  return GROUPS.slotOf({ limit: USER_LIMIT, owner: user })
}
