// Fixtures of limiter tests: a limiter on a fake clock, a store that must not be called, and a remote store.

import {
  createLimiter,
  type Decision,
  type ErrorCode,
  type Limiter,
  type LimiterOptions,
  memoryStore,
  type Store,
  type Subject,
} from 'sluice'
import { type FakeClock, fakeClock } from 'sluice/testing'
import { expect } from 'vitest'
import { remote } from '../src/testing/remote.ts'

export type Fields = Record<string, unknown>
export type Bench = { limiter: Limiter; clock: FakeClock; check(subject?: Subject, requestId?: string): Decision }

export const MINUTE = { limit: 10, window_seconds: 60 }

/** A limiter on a fake clock. Rules default to 10 per minute, and to the ids a, b, c, … */
export function bench(rules: readonly Fields[], options: Partial<LimiterOptions> = {}): Bench {
  const clock = fakeClock()
  const limiter = createLimiter({ rules: complete(rules), store: memoryStore({ clock }), clock, ...options })
  return { limiter, clock, check: (subject = {}, requestId) => limiter.checkSync(subject, requestId) as Decision }
}

export function complete(rules: readonly Fields[]): Fields[] {
  return rules.map((rule, index) => ({
    rule_id: 'abcdefgh'[index],
    ...('limits' in rule ? {} : MINUTE),
    ...rule,
  }))
}

/** Number of admitted requests out of `count`. */
export function admitted({ check }: Bench, subject: Subject = {}, count = 20): number {
  let allowed = 0
  for (let index = 0; index < count; index += 1) if (check(subject).allowed) allowed += 1
  return allowed
}

/** A store that throws on every call. */
export const untouchable: Store = new Proxy({} as Store, {
  get: (_store, verb) => {
    if (verb === 'named') return undefined
    return () => {
      throw new Error(`${String(verb)} was called`)
    }
  },
})

/** A store that replies asynchronously, once `answer` has resolved. */
export function remoteStore(clock: FakeClock): Store & { takes: number; answer: Promise<void> } {
  const inner = memoryStore({ clock })
  return {
    ...remote(inner),
    takes: 0,
    answer: Promise.resolve(),
    async take(take) {
      this.takes += 1
      await this.answer
      return inner.take(take)
    },
  }
}

/** Matches a LimiterError with this code and, if given, an error of this field. */
export function rejection(code: ErrorCode, field?: string): unknown {
  const fields = field === undefined ? {} : { fieldErrors: [expect.objectContaining({ field })] }
  return expect.objectContaining({ code, ...fields })
}

export function thrownBy(run: () => unknown): unknown {
  try {
    run()
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}
