// Store contract: the test suite that every implementation of Store must pass. A case that cannot hold for a store is
// skipped by name, with the reason.

import { ALGORITHM_NAMES } from '../algorithms/traits.ts'
import type { Store } from '../store/store.ts'
import { Bench, bucket, type Case, charge, limitOf, type TestFramework } from './contract-fixture.ts'
import { COUNTERFACTUAL } from './counterfactual-cases.ts'
import { type FakeClock, fakeClock } from './fake-clock.ts'
import { IDEMPOTENCY } from './idempotency-cases.ts'
import { MALFORMED } from './malformed-cases.ts'

export type ContractOptions = TestFramework & {
  /** Creates an empty store on the given clock. */
  create(clock: FakeClock): Store | Promise<Store>
  /** Case name → why it cannot hold for this store. */
  readonly skip?: Readonly<Record<string, string>>
}

export function storeContract(name: string, options: ContractOptions): void {
  const { describe, test, skip = {} } = options
  describe(`store contract: ${name}`, () => {
    for (const [title, run] of Object.entries({
      ...ALL_OR_NOTHING,
      ...KINDS,
      ...DEBTS,
      ...GIVING,
      ...RESETTING,
      ...IDEMPOTENCY,
      ...PERMITS,
      ...EDITS,
      ...TIME,
      ...COUNTERFACTUAL,
      ...MALFORMED,
    })) {
      if (skip[title] !== undefined) continue
      test(title, async () => {
        const clock = fakeClock()
        const store = await options.create(clock)
        try {
          await run(new Bench(store, clock, options))
        } finally {
          await store.close()
        }
      })
    }
  })
}

const ALL_OR_NOTHING: Record<string, Case> = {
  'each algorithm grants exactly its limit at one instant': async (bench) => {
    for (const algorithm of ALGORITHM_NAMES) bench.equal(await bench.granted(limitOf(algorithm), 15), 10, algorithm)
  },

  'a refused take consumes nothing from any other bucket': async (bench) => {
    for (const algorithm of ALGORITHM_NAMES) {
      const wide = limitOf(algorithm, { id: `wide-${algorithm}` })
      const narrow = limitOf('fixed_window', { id: `narrow-${algorithm}`, units: 1 })
      const both = [charge(wide), charge(narrow)]
      bench.equal((await bench.take(both, 'a')).granted, true)
      bench.equal((await bench.take(both, 'b')).granted, false)
      bench.equal(await bench.remaining(wide), 9, algorithm)
    }
  },

  'grants are in the order of the charges and show which was short': async (bench) => {
    const wide = limitOf('token_bucket')
    const narrow = limitOf('fixed_window', { units: 1 })
    await bench.take([charge(narrow)])
    const taken = await bench.take([charge(wide), charge(narrow)])
    bench.equal(
      taken.grants.map(({ short, units }) => [short, units]),
      [
        [false, 0],
        ['now', 0],
      ],
    )
  },

  'a bucket used twice in one take counts both uses': async (bench) => {
    const limit = limitOf('token_bucket', { units: 3 })
    bench.equal((await bench.take([charge(limit), charge(limit, { min: 2, max: 2 })])).granted, true)
    bench.equal(await bench.remaining(limit), 0)
    const other = limitOf('token_bucket', { id: 'other', units: 3 })
    bench.equal(
      (await bench.take([charge(other, { min: 2, max: 2 }), charge(other, { min: 2, max: 2 })])).granted,
      false,
    )
    bench.equal(await bench.remaining(other), 3)
    // A bucket is named by ids, so limits that were compiled apart name one bucket.
    const again = () => limitOf('fixed_window', { id: 'again', units: 9 })
    await bench.take([charge(again()), charge(again(), { min: 2, max: 2 })])
    bench.equal(await bench.remaining(again()), 6)
  },

  'owner, detail, fact and limit id identify a bucket': async (bench) => {
    const limit = limitOf('fixed_window', { units: 1 })
    const variants = [
      charge(limit, { owner: 'a', detail: 'bc' }),
      charge(limit, { owner: 'ab', detail: 'c' }),
      charge(limit, { owner: 'abc' }),
      charge(limitOf('fixed_window', { units: 1, fact: 'ip' }), { owner: 'abc' }),
      charge(limitOf('fixed_window', { units: 1, id: 'another' }), { owner: 'abc' }),
      charge(limit, { owner: '{abc}' }),
      charge(limit, { owner: 'a b\r\nc\0' }),
      charge(limit, { owner: '%7babc%7d' }),
      charge(limit, { owner: 'x'.repeat(1000) }),
      charge(limit, { owner: `${'x'.repeat(999)}y` }),
      charge(limit, { owner: '\ud800' }),
      charge(limit, { owner: '\ud801' }),
      charge(limit, { owner: '\ufffd' }),
    ]
    for (const variant of variants)
      bench.equal((await bench.take([variant])).granted, true, JSON.stringify(variant.owner))
    for (const variant of variants) bench.equal((await bench.take([variant])).granted, false)
  },

  'peek charges nothing': async (bench) => {
    const limit = limitOf('sliding_window')
    for (let index = 0; index < 20; index += 1) bench.equal(await bench.remaining(limit), 10)
    bench.equal(await bench.granted(limit, 15), 10)
    const peeked = await bench.store.peek([charge(limit)])
    bench.equal([peeked.granted, peeked.grants[0]?.short], [false, 'now'])
  },
}

const KINDS: Record<string, Case> = {
  'a cost above the capacity is refused as never available': async (bench) => {
    for (const algorithm of ALGORITHM_NAMES) {
      const { granted, grants } = await bench.take([charge(limitOf(algorithm), { min: 11, max: 11 })], 'op')
      bench.equal([granted, grants[0]?.short, grants[0]?.retryAfterUs], [false, 'never', Number.POSITIVE_INFINITY])
    }
  },

  'a lease gets at least its minimum, and at most the units left': async (bench) => {
    for (const algorithm of ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const) {
      const limit = limitOf(algorithm)
      bench.equal((await bench.take([charge(limit, { min: 1, max: 7 })])).grants[0]?.units, 7, algorithm)
      bench.equal((await bench.take([charge(limit, { min: 1, max: 7 })])).grants[0]?.units, 3, algorithm)
      bench.equal((await bench.take([charge(limit, { min: 1, max: 7 })])).granted, false, algorithm)
    }
  },

  'shadow never refuses, and counts only granted takes': async (bench) => {
    const shadow = limitOf('token_bucket', { id: 'shadow', units: 2 })
    const enforced = limitOf('fixed_window', { units: 3 })
    const both = [charge(shadow, { kind: 'shadow' }), charge(enforced)]
    const answers = []
    for (let index = 0; index < 4; index += 1) {
      const { granted, grants } = await bench.take(both)
      answers.push([granted, grants[0]?.short, grants[0]?.units])
    }
    const expected = [
      [true, false, 1],
      [true, false, 1],
      [true, 'now', 0],
      [false, 'now', 0],
    ]
    bench.equal(answers, expected)
  },

  'force is always charged, and reports whether it was over the limit': async (bench) => {
    const forced = limitOf('token_bucket', { id: 'forced', units: 2, windowUs: 2_000_000 })
    const closed = limitOf('fixed_window', { units: 0 })
    for (const short of [false, false, 'now', 'now']) {
      const { granted, grants } = await bench.take([charge(forced, { kind: 'force' }), charge(closed)])
      bench.equal([granted, grants[0]?.short, grants[0]?.units], [false, short, 1])
    }
    const { grants } = await bench.take([charge(forced)])
    bench.equal(grants[0]?.retryAfterUs, 3_000_000, 'two units of debt and one to take, at one per second')
  },
}

const DEBTS: Record<string, Case> = {
  'debt is capped where it can still be counted exactly': async (bench) => {
    for (const algorithm of ['token_bucket', 'fixed_window', 'sliding_window'] as const) {
      const limit = limitOf(algorithm, { id: `debt-${algorithm}`, units: 3 })
      for (let index = 0; index < 4; index += 1) {
        await bench.take([charge(limit, { min: 1, max: 2 ** 52, kind: 'force' })])
      }
      bench.equal((await bench.take([charge(limit)])).granted, false, algorithm)
      bench.equal(await bench.remaining(limit), 0, algorithm)
    }
  },
}

const GIVING: Record<string, Case> = {
  'returned units can be taken again, and no more than those': async (bench) => {
    for (const algorithm of ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const) {
      const limit = limitOf(algorithm)
      const { nowUs } = await bench.take([charge(limit, { min: 4, max: 4 })])
      await bench.store.give([{ ...bucket(limit), units: 4, bookedUs: nowUs }])
      await bench.store.give([{ ...bucket(limit), units: 4, bookedUs: nowUs }])
      bench.equal(await bench.remaining(limit), 10, algorithm)
      bench.equal(await bench.granted(limit, 15), 10, algorithm)
    }
  },

  'token bucket units that have refilled are not returned twice': async (bench) => {
    const limit = limitOf('token_bucket', { units: 10, windowUs: 10_000_000 })
    const { nowUs } = await bench.take([charge(limit, { min: 10, max: 10 })])
    bench.clock.advanceMs(4000)
    await bench.store.give([{ ...bucket(limit), units: 6, bookedUs: nowUs }])
    bench.equal(await bench.remaining(limit), 6, 'four have refilled, so only two of the six are returned')
  },

  'units of a closed window are dropped': async (bench) => {
    const limit = limitOf('fixed_window')
    const { nowUs } = await bench.take([charge(limit, { min: 5, max: 5 })])
    bench.clock.advanceMs(60_000)
    await bench.take([charge(limit, { min: 5, max: 5 })])
    await bench.store.give([{ ...bucket(limit), units: 5, bookedUs: nowUs }])
    bench.equal(await bench.remaining(limit), 5)
  },

  'negative units are debt': async (bench) => {
    const limit = limitOf('token_bucket')
    const { nowUs } = await bench.take([charge(limit)])
    await bench.store.give([{ ...bucket(limit), units: -5, bookedUs: nowUs }])
    bench.equal(await bench.remaining(limit), 4)
  },

  'a reset fills its bucket and no other': async (bench) => {
    for (const algorithm of ALGORITHM_NAMES) {
      const limit = limitOf(algorithm)
      await bench.granted(limit, 10)
      await bench.granted(limit, 3, 'bob')
      await bench.store.reset(bucket(limit))
      bench.equal([await bench.remaining(limit), await bench.remaining(limit, 'bob')], [10, 7], algorithm)
    }
  },
}

const RESETTING: Record<string, Case> = {
  'a take resets buckets and charges in one step': async (bench) => {
    for (const algorithm of ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const) {
      const limit = limitOf(algorithm)
      const other = limitOf(algorithm, { id: `other-${algorithm}` })
      await bench.granted(limit, 10)
      await bench.granted(other, 3)
      const charges = [charge(limit, { min: 4, max: 4 })]
      const resetAndTake = () => bench.store.take({ charges, resets: [bucket(limit), bucket(other)] })
      const takes = [resetAndTake(), bench.take([charge(limit, { min: 7, max: 7 })]), resetAndTake()]
      bench.equal(
        (await Promise.all(takes)).map(({ granted }) => granted),
        [true, false, true],
        algorithm,
      )
      bench.equal([await bench.remaining(limit), await bench.remaining(other)], [6, 10], algorithm)
    }
  },

  'a refused take also resets': async (bench) => {
    const [limit, narrow] = [limitOf('fixed_window'), limitOf('fixed_window', { id: 'narrow', units: 1 })]
    await bench.granted(limit, 4)
    await bench.granted(narrow, 1)
    const take = { charges: [charge(narrow)], resets: [bucket(limit)] }
    bench.equal((await bench.store.take(take)).granted, false)
    bench.equal(await bench.remaining(limit), 10)
  },
}

const PERMITS: Record<string, Case> = {
  'taking the same permit again renews it': async (bench) => {
    const limit = limitOf('concurrency', { units: 2 })
    bench.equal((await bench.take([charge(limit)], 'a')).replayed, false)
    bench.clock.advanceMs(40_000)
    bench.equal((await bench.take([charge(limit)], 'a')).replayed, true)
    bench.clock.advanceMs(40_000)
    bench.equal(await bench.remaining(limit), 1, 'renewed at 40 s, so held until 100 s')
  },

  'a released permit is free immediately; others stay held': async (bench) => {
    const limit = limitOf('concurrency', { units: 2 })
    const { nowUs } = await bench.take([charge(limit)], 'a')
    await bench.take([charge(limit)], 'b')
    bench.equal((await bench.take([charge(limit)], 'c')).granted, false)
    await bench.store.give([{ ...bucket(limit), units: 1, bookedUs: nowUs }], 'a')
    bench.equal((await bench.take([charge(limit)], 'c')).granted, true)
    bench.equal((await bench.take([charge(limit)], 'd')).granted, false)
  },

  'a permit that is not renewed expires, and a refusal reports when': async (bench) => {
    const limit = limitOf('concurrency', { units: 1 })
    await bench.take([charge(limit)], 'a')
    bench.clock.advanceMs(15_000)
    bench.equal((await bench.take([charge(limit)], 'b')).grants[0]?.retryAfterUs, 45_000_000)
    bench.clock.advanceMs(45_000)
    bench.equal((await bench.take([charge(limit)], 'b')).granted, true)
  },

  'a permit without an op id is rejected': async (bench) => {
    let code: unknown
    try {
      await bench.take([charge(limitOf('concurrency'))])
    } catch (error) {
      code = (error as { code?: unknown }).code
    }
    bench.equal(code, 'OPTION_INVALID')
  },
}

const EDITS: Record<string, Case> = {
  'an edited window keeps the units in use': async (bench) => {
    for (const algorithm of ['fixed_window', 'sliding_window', 'sliding_window_log', 'concurrency'] as const) {
      await bench.granted(limitOf(algorithm), 6)
      bench.equal(await bench.remaining(limitOf(algorithm, { units: 20, generation: 1 })), 14, algorithm)
      bench.equal(await bench.remaining(limitOf(algorithm, { units: 4, generation: 2 })), 0, algorithm)
    }
  },

  'an edited bucket keeps the larger debt, in units or in refill time': async (bench) => {
    for (const algorithm of ['token_bucket', 'leaky_bucket'] as const) {
      await bench.granted(limitOf(algorithm), 5)
      // Refilling 5 of 10 units takes half a minute: half of any capacity with the same window.
      bench.equal(await bench.remaining(limitOf(algorithm, { units: 100, generation: 1 })), 50, algorithm)
      // In units the debt is 5: of a capacity of 6 that leaves 1, whereas half of it would leave 3.
      bench.equal(await bench.remaining(limitOf(algorithm, { units: 6, generation: 1 })), 1, algorithm)
      bench.equal(await bench.remaining(limitOf(algorithm, { units: 2, generation: 1 })), 0, algorithm)
    }
  },

  'a refusal under a smaller limit returns nothing to a larger one': async (bench) => {
    for (const algorithm of ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const) {
      const large = limitOf(algorithm, { units: 100 })
      const small = limitOf(algorithm, { units: 10 })
      bench.equal(await bench.granted(large, 120), 100, algorithm)
      for (let round = 0; round < 5; round += 1) {
        bench.equal(await bench.granted(small, 3), 0, algorithm)
        bench.equal(await bench.granted(large, 3), 0, algorithm)
      }
    }
  },

  'an edit never makes a client wait longer than for an empty bucket': async (bench) => {
    await bench.granted(limitOf('token_bucket', { units: 1000 }), 1000)
    const small = limitOf('token_bucket', { units: 2, windowUs: 2_000_000, generation: 1 })
    bench.equal((await bench.take([charge(small)])).grants[0]?.retryAfterUs, 1_000_000)
    bench.clock.advanceMs(1000)
    bench.equal((await bench.take([charge(small)])).granted, true, 'the reported wait was exact')
  },

  'a rule that changes its algorithm keeps the units in use': async (bench) => {
    await bench.granted(limitOf('fixed_window', { id: 'same' }), 7)
    const next = limitOf('sliding_window', { id: 'same', generation: 1 })
    bench.equal(await bench.remaining(next), 3)
  },

  'a rule that changes to a list algorithm, or between two, starts with a full bucket': async (bench) => {
    for (const detailBounded of [true, false]) {
      for (const algorithm of ['token_bucket', 'sliding_window_log', 'fixed_window', 'concurrency'] as const) {
        const limit = limitOf(algorithm, { id: algorithm === 'concurrency' ? '!kinds' : 'kinds', detailBounded })
        bench.equal((await bench.take([charge(limit, { detail: 'd' })], 'op')).granted, true, algorithm)
      }
    }
  },

  'older rules cannot overwrite state of newer ones': async (bench) => {
    for (const algorithm of ALGORITHM_NAMES) {
      const older = limitOf(algorithm, { units: 100, generation: 1 })
      const newer = limitOf(algorithm, { units: 5, generation: 2 })
      bench.equal(await bench.granted(newer, 5), 5)
      const { granted, grants } = await bench.take([charge(older)], 'late')
      bench.equal([granted, grants[0]?.short], [false, 'stale_rules'], algorithm)
      bench.equal(await bench.granted(newer, 1), 0, algorithm)
    }
  },
}

const TIME: Record<string, Case> = {
  'a client that waits retryAfterUs is admitted, and not a microsecond earlier': async (bench) => {
    for (const algorithm of ALGORITHM_NAMES) {
      const limit = limitOf(algorithm, { units: 7, windowUs: 1_000_000 })
      bench.clock.advanceUs(123_457)
      await bench.granted(limit, 4)
      const last = await bench.take([charge(limit, { min: 3, max: 3 })], 'last')
      const { grants } = await bench.take([charge(limit, { min: 3, max: 3 })], 'waits')
      const retryAfterUs = grants[0]?.retryAfterUs ?? 0
      // A permit can be renewed at once, so its holder does not wait.
      const known = algorithm === 'concurrency' ? 0 : retryAfterUs
      bench.equal(last.grants[0]?.retryAfterUs, known, `${algorithm}: known to the request before`)
      bench.clock.advanceUs(retryAfterUs - 1)
      bench.equal((await bench.take([charge(limit, { min: 3, max: 3 })], 'waits')).granted, false, algorithm)
      bench.clock.advanceUs(1)
      bench.equal((await bench.take([charge(limit, { min: 3, max: 3 })], 'waits')).granted, true, algorithm)
    }
  },

  'a clock that steps back neither locks clients out nor admits a burst': async (bench) => {
    for (const algorithm of ALGORITHM_NAMES) {
      const limit = limitOf(algorithm, { id: `back-${algorithm}`, units: 5, windowUs: 5_000_000 })
      await bench.granted(limit, 5)
      bench.clock.advanceMs(-3_600_000)
      bench.equal(await bench.granted(limit, 5), 0, `${algorithm}: no burst`)
      bench.clock.advanceMs(10_000)
      bench.equal(await bench.granted(limit, 7), 5, `${algorithm}: back to normal two windows later`)
      bench.clock.advanceMs(3_600_000)
    }
  },

  'a leaky bucket spaces admitted requests': async (bench) => {
    const limit = limitOf('leaky_bucket', { units: 4, windowUs: 1_000_000, burst: 3 })
    const delays = []
    for (let index = 0; index < 4; index += 1) delays.push((await bench.take([charge(limit)])).grants[0]?.delayUs)
    bench.equal(delays, [0, 250_000, 500_000, 0], 'the fourth is refused: the queue is full')
  },
}
