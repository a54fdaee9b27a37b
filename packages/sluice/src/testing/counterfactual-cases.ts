// Store contract, counterfactual charges: the version of a rule that is not enforced sees the same requests as the
// enforced one, and decides as it would have decided alone.

import { compileCounterfactual, type Limit, type LimitNumbers } from '../algorithms/limit.ts'
import type { AlgorithmName } from '../algorithms/traits.ts'
import type { Charge, Taken } from '../store/store.ts'
import { type Bench, bucket, type Case, charge, limitOf } from './contract-fixture.ts'

const ALGORITHMS: readonly AlgorithmName[] = [
  ...(['token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const),
]

/** Limit of the other version of a rule: its bucket starts from that of `limitOf(algorithm)`. */
function otherOf(algorithm: AlgorithmName, numbers: Partial<LimitNumbers> = {}): Limit {
  const { id, fact, units, windowUs } = limitOf(algorithm)
  return compileCounterfactual({ id, fact, algorithm, units, windowUs, ...numbers }, 'candidate')
}

function pairOf(live: Limit, other: Limit, more: Partial<Charge> = {}): Charge[] {
  return [charge(live, { pair: 1, ...more }), charge(other, { pair: 1, ...more, kind: 'counterfactual' })]
}

/** Whether each charge of a take was short, and what it was charged. */
function results({ grants }: Taken): unknown[] {
  return grants.map(({ short, units }) => [short, units])
}

/** Takes one unit `count` times; true where the counterfactual charge, the second, was charged. */
async function charged(bench: Bench, charges: readonly Charge[], count: number): Promise<boolean[]> {
  const all: boolean[] = []
  for (let index = 0; index < count; index += 1) all.push((await bench.take(charges)).grants[1]?.units === 1)
  return all
}

export const COUNTERFACTUAL: Record<string, Case> = {
  'a counterfactual charge never refuses, and is charged only while it admits': async (bench) => {
    for (const algorithm of ALGORITHMS) {
      const charges = pairOf(limitOf(algorithm), otherOf(algorithm, { units: 2 }))
      const answers = [await bench.take(charges), await bench.take(charges), await bench.take(charges)]
      bench.equal(
        answers.map(({ granted }) => granted),
        [true, true, true],
        algorithm,
      )
      bench.equal(
        results(answers[2] as Taken),
        [
          [false, 1],
          ['now', 0],
        ],
        algorithm,
      )
      bench.equal(await bench.remaining(limitOf(algorithm)), 7, algorithm)
    }
  },

  'a counterfactual charge counts requests that its enforced version refuses': async (bench) => {
    for (const algorithm of ALGORITHMS) {
      const charges = pairOf(limitOf(algorithm), otherOf(algorithm, { units: 13 }))
      for (let index = 0; index < 10; index += 1) bench.equal((await bench.take(charges)).granted, true, algorithm)
      const refused = await bench.take(charges)
      bench.equal([refused.granted, ...results(refused)], [false, ['now', 0], [false, 1]], algorithm)
      bench.equal(await charged(bench, charges, 4), [true, true, false, false], algorithm)
    }
  },

  'a request that another rule refuses is charged to neither version': async (bench) => {
    for (const algorithm of ALGORITHMS) {
      const closed = limitOf('fixed_window', { id: `closed-${algorithm}`, units: 0 })
      const charges = [...pairOf(limitOf(algorithm), otherOf(algorithm, { units: 1 })), charge(closed)]
      bench.equal(await charged(bench, charges, 3), [false, false, false], algorithm)
      bench.equal(await charged(bench, charges.slice(0, 2), 2), [true, false], algorithm)
    }
  },

  'the enforced version of another pair binds like any other rule': async (bench) => {
    const closed = limitOf('fixed_window', { id: 'closed', units: 0 })
    const [live, other] = [limitOf('token_bucket'), otherOf('token_bucket')]
    const open = compileCounterfactual(
      { id: 'closed', fact: 'user', algorithm: 'fixed_window', units: 5, windowUs: 1e6 },
      'current',
    )
    const taken = await bench.take([...pairOf(live, other), ...pairOf(closed, open, { pair: 2 })])
    bench.equal(results(taken), [
      [false, 0],
      [false, 0],
      ['never', 0],
      [false, 1],
    ])
  },

  'all counterfactual charges of a pair are charged, or none': async (bench) => {
    const narrow = compileCounterfactual(
      { id: 'narrow', fact: 'user', algorithm: 'fixed_window', units: 1, windowUs: 6e7 },
      'candidate',
    )
    const more = charge(narrow, { pair: 1, kind: 'counterfactual' })
    const charges = [...pairOf(limitOf('token_bucket'), otherOf('token_bucket')), more]
    bench.equal(results(await bench.take(charges)), [
      [false, 1],
      [false, 1],
      [false, 1],
    ])
    bench.equal(results(await bench.take(charges)), [
      [false, 1],
      [false, 0],
      ['now', 0],
    ])
  },

  'a counterfactual bucket starts with the state of the live bucket before the take': async (bench) => {
    for (const algorithm of ALGORITHMS) {
      const [live, other] = [limitOf(algorithm), otherOf(algorithm, { units: 8 })]
      bench.equal(await bench.granted(live, 6), 6)
      bench.equal(await charged(bench, pairOf(live, other), 4), [true, true, false, false], algorithm)
    }
  },

  'a counterfactual bucket starts from the live bucket once, also if it was refused': async (bench) => {
    for (const algorithm of ['token_bucket', 'sliding_window_log'] as const) {
      const windowUs = 10_000_000
      const [live, other] = [limitOf(algorithm, { windowUs }), otherOf(algorithm, { units: 5, windowUs })]
      await bench.take([charge(live, { min: 8, max: 8 })])
      bench.equal(await charged(bench, pairOf(live, other), 1), [false], algorithm)
      bench.clock.advanceMs(10_000)
      await bench.take([charge(live, { min: 9, max: 9 })])
      bench.equal(await charged(bench, pairOf(live, other), 6), [true, true, true, true, true, false], algorithm)
    }
  },

  'a counterfactual bucket that has become full does not start again': async (bench) => {
    for (const algorithm of ALGORITHMS) {
      const [live, other] = [limitOf(algorithm), otherOf(algorithm, { units: 2 })]
      bench.equal(await charged(bench, pairOf(live, other), 1), [true], algorithm)
      bench.clock.advanceMs(300_000)
      await bench.take([charge(live, { min: 9, max: 9 })])
      bench.equal(await charged(bench, pairOf(live, other), 3), [true, true, false], algorithm)
    }
  },

  'a peek of counterfactual charges changes nothing': async (bench) => {
    const [live, other] = [limitOf('fixed_window'), otherOf('fixed_window', { units: 4 })]
    await bench.take([charge(live, { min: 3, max: 3 })])
    const peeked = await bench.store.peek(pairOf(live, other))
    bench.equal([peeked.granted, peeked.grants[1]?.remaining], [true, 1])
    await bench.take([charge(live)])
    bench.equal((await bench.take(pairOf(live, other))).grants[1]?.short, 'now', 'it starts at the first take')
  },

  'counterfactual units can be given back': async (bench) => {
    const [live, other] = [limitOf('fixed_window'), otherOf('fixed_window', { units: 1 })]
    const { nowUs } = await bench.take(pairOf(live, other))
    await bench.store.give([{ ...bucket(other), units: 1, bookedUs: nowUs }])
    bench.equal(await charged(bench, pairOf(live, other), 2), [true, false])
  },
}
