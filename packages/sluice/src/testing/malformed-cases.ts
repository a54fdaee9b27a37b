// Store contract, malformed and unusual requests: malformed ones fail alone, unusual ones are served like any other.

import type { BucketName, Charge, Give } from '../store/store.ts'
import { type Bench, bucket, type Case, charge, limitOf } from './contract-fixture.ts'

const NOT_TEXT = [7, null, undefined, true, ['a', 'b'], { id: 'a' }, Symbol('a'), 7n]
const NOT_UNITS = [Number.NaN, Number.POSITIVE_INFINITY, 0, -1, 0.5, 2 ** 53, '1', null, [1]]

const BAD_NAMES = NOT_TEXT.flatMap((value): Wrong<BucketName>[] => [{ owner: value }, { detail: value }])
const BAD_CHARGES: readonly Wrong<Charge>[] = [
  ...BAD_NAMES,
  ...NOT_UNITS.flatMap((units) => [{ min: units, max: units }, { max: units }]),
  { min: 2, max: 1 },
  ...[0, -1, 0.5, 65_536, '1', null].map((pair) => ({ pair })),
  { kind: 'counterfactual' },
  { kind: 'other' },
]
const BAD_GIVES: readonly Wrong<Give>[] = [
  ...BAD_NAMES,
  ...[Number.NaN, 0.5, '1', null].map((units) => ({ units })),
  ...[Number.NaN, Number.POSITIVE_INFINITY, '1', null].map((bookedUs) => ({ bookedUs })),
  { settled: Number.NaN },
]
const BAD_OP_IDS: readonly unknown[] = [...NOT_TEXT.filter((id) => id !== undefined), '']

/** Unusual strings, all different. */
const TEXTS: readonly string[] = [
  ...['\ud800', '\udfff', '\ufffd', '\uffff', '\uffffd800', 'd800', '\0', '%', '{}', ' ', '\u{1f600}'],
  ...['x', 'y', '\ud800'].map((end) => `${'x'.repeat(70_000)}${end}`),
]

type Wrong<T> = Partial<Record<keyof T, unknown>>

/** Yields every malformed request. */
function* malformed({ store }: Bench): Generator<[what: string, send: () => unknown]> {
  const limit = limitOf('fixed_window')
  const permits = limitOf('concurrency')
  const give: Give = { ...bucket(limit), units: 1, bookedUs: 0 }
  for (const wrong of BAD_CHARGES) {
    const charges = [charge(limit), { ...charge(limit), ...(wrong as object) }]
    yield [`take ${describe(wrong)}`, () => store.take({ charges })]
    yield [`peek ${describe(wrong)}`, () => store.peek(charges)]
  }
  for (const wrong of BAD_GIVES) {
    yield [`give ${describe(wrong)}`, () => store.give([give, { ...give, ...(wrong as object) }])]
  }
  for (const wrong of BAD_NAMES) {
    const named = { ...bucket(limit), ...(wrong as object) }
    yield [`reset ${describe(wrong)}`, () => store.reset(named)]
    yield [`take with a reset ${describe(wrong)}`, () => store.take({ charges: [charge(limit)], resets: [named] })]
  }
  for (const id of BAD_OP_IDS as readonly string[]) {
    yield [`take as ${describe({ id })}`, () => store.take({ charges: [charge(permits)], op: { id } })]
    yield [`give as ${describe({ id })}`, () => store.give([{ ...give, limit: permits }], id)]
  }
}

function describe(wrong: object): string {
  return Object.entries(wrong)
    .map(([field, value]) => `${field}: ${typeof value} ${String(value)}`)
    .join(', ')
}

/** Code of the error with which a request throws or rejects. */
async function codeOf(send: () => unknown): Promise<unknown> {
  try {
    await send()
    return 'no error'
  } catch (error) {
    return (error as { code?: unknown }).code
  }
}

export const MALFORMED: Record<string, Case> = {
  'a malformed request fails alone, and concurrent requests are answered': async (bench) => {
    const limit = limitOf('fixed_window', { id: 'innocent', units: 1_000_000 })
    for (const [what, send] of malformed(bench)) {
      const before = bench.take([charge(limit)])
      const failed = codeOf(send)
      const answers = await Promise.all([before, bench.take([charge(limit)]), bench.take([charge(limit)])])
      const isAnswered = answers.map(({ granted, source }) => granted && source !== 'policy')
      bench.equal([await failed, ...isAnswered], ['OPTION_INVALID', true, true, true], what)
    }
    bench.equal(await bench.remaining(limitOf('fixed_window')), 10, 'nothing was charged')
  },

  'any string is a valid owner, detail and permit, distinct from all others': async (bench) => {
    for (const detailBounded of [true, false]) {
      const limit = limitOf('fixed_window', { id: `texts-${detailBounded}`, units: 1, detailBounded })
      for (const granted of [true, false]) {
        for (const text of TEXTS) {
          for (const named of [{ detail: text }, { owner: text }, { owner: text, detail: text }]) {
            bench.equal((await bench.take([charge(limit, named)])).granted, granted, JSON.stringify(text.slice(-8)))
          }
        }
      }
    }
    const permits = limitOf('concurrency', { units: 100 })
    for (const replayed of [false, true]) {
      for (const id of TEXTS) {
        bench.equal((await bench.take([charge(permits)], id)).replayed, replayed, JSON.stringify(id.slice(-8)))
      }
    }
  },
}
