// Fixture of the store contract: a store under test, with helpers for its cases.

import { compileLimit, type Limit, type LimitNumbers } from '../algorithms/limit.ts'
import type { AlgorithmName } from '../algorithms/traits.ts'
import type { BucketName, Charge, Store, Take, Taken } from '../store/store.ts'
import type { FakeClock } from './fake-clock.ts'

/** Subset of vitest, jest or node:test that the suite needs. */
export type TestFramework = {
  describe(name: string, suite: () => void): void
  test(name: string, run: () => Promise<void>): void
  expect(actual: unknown, message?: string): { toEqual(expected: unknown): void }
}

const MINUTE_US = 60_000_000

export class Bench {
  readonly clock: FakeClock
  readonly store: Store
  readonly #framework: TestFramework
  #ops = 0

  constructor(store: Store, clock: FakeClock, framework: TestFramework) {
    this.store = store
    this.clock = clock
    this.#framework = framework
  }

  async take(charges: readonly Charge[], opId?: string): Promise<Taken> {
    const take: Take = opId === undefined ? { charges } : { charges, op: { id: opId } }
    return this.store.take(take)
  }

  /** Number of granted takes among `count` takes of one unit. */
  async granted(limit: Limit, count: number, owner = 'alice'): Promise<number> {
    let granted = 0
    for (let index = 0; index < count; index += 1) {
      const taken = await this.take([charge(limit, { owner })], `op-${this.#ops++}`)
      if (taken.granted) granted += 1
    }
    return granted
  }

  async remaining(limit: Limit, owner = 'alice'): Promise<number | undefined> {
    const peeked = await this.store.peek([charge(limit, { owner })])
    return peeked.grants[0]?.remaining
  }

  equal(actual: unknown, expected: unknown, message?: string): void {
    this.#framework.expect(actual, message).toEqual(expected)
  }
}

/** One case of the contract, on a new store. */
export type Case = (bench: Bench) => Promise<void>

export function limitOf(algorithm: AlgorithmName, numbers: Partial<LimitNumbers> = {}): Limit {
  return compileLimit({ id: `${algorithm}-rule`, fact: 'user', algorithm, units: 10, windowUs: MINUTE_US, ...numbers })
}

export function charge(limit: Limit, more: Partial<Charge> = {}): Charge {
  return { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce', ...more }
}

export function bucket(limit: Limit, owner = 'alice'): BucketName {
  return { limit, owner, detail: '' }
}
