import { seededRandom } from 'sluice/testing'
import { describe, expect, test } from 'vitest'
import { TopSketch } from './top-sketch.ts'

const COUNTERS = 200

/** A sketch, and exact counts to compare it with. */
function watched(countersMax = COUNTERS) {
  const sketch = new TopSketch<undefined>(countersMax)
  const truth = new Map<string, number>()
  const record = (name: string) => {
    sketch.record('limit', name, undefined)
    truth.set(name, (truth.get(name) ?? 0) + 1)
  }
  const halve = () => {
    sketch.halve()
    for (const [name, count] of truth) truth.set(name, count / 2)
  }
  return { sketch, truth, record, halve }
}

/** Names in an approximate Zipf distribution: of `keys` names, the nth is about 1/n as frequent as the first. */
function zipf(seed: number, keys = 100_000): () => string {
  const random = seededRandom(seed)
  return () => `key-${Math.floor(keys ** random.next())}`
}

function topOf(counts: Iterable<readonly [string, number]>, length: number): string[] {
  const sorted = [...counts].sort(([, a], [, b]) => b - a)
  return sorted.slice(0, length).map(([name]) => name)
}

describe('the bounds of space-saving', () => {
  test.each([1, 2, 3])('hold for every name and every counter (seed %i)', (seed) => {
    const { sketch, truth, record } = watched(50)
    const next = zipf(seed, 5000)
    const sightings = 30_000
    for (let index = 0; index < sightings; index += 1) record(next())
    expect(sketch.counters).toHaveLength(50)
    for (const { name, count, countMin } of sketch.counters) {
      const seen = truth.get(name) ?? 0
      expect(countMin, name).toBeLessThanOrEqual(seen)
      expect(seen, name).toBeLessThanOrEqual(count)
      expect(count - countMin, name).toBeLessThanOrEqual(sightings / 50)
    }
    const often = [...truth].filter(([, seen]) => seen > sightings / 50)
    expect(often.length).toBeGreaterThan(3)
    for (const [name] of often) expect(sketch.find('limit', name), name).toBeDefined()
  })

  test.each([1, 2, 3])('hold for halved counts too, within one sighting (seed %i)', (seed) => {
    const { sketch, truth, record, halve } = watched(50)
    const next = zipf(seed, 5000)
    for (let round = 0; round < 40; round += 1) {
      for (let index = 0; index < 997; index += 1) record(next())
      if (round > 0) halve()
    }
    for (const { name, count, countMin } of sketch.counters) {
      const seen = truth.get(name) ?? 0
      expect(countMin, name).toBeLessThanOrEqual(seen)
      expect(seen, name).toBeLessThan(count + 1)
    }
  })
})

test('finds the top ten of a Zipf distribution of 100,000 names, in order', () => {
  const { sketch, truth, record } = watched()
  const next = zipf(4)
  for (let index = 0; index < 300_000; index += 1) record(next())
  const found = topOf(
    sketch.counters.map(({ name, countMin }) => [name, countMin] as const),
    10,
  )
  expect(found).toEqual(topOf(truth, 10))
})

test('a flood of one-time names does not evict a frequent one', () => {
  const { sketch, truth, record } = watched()
  for (let index = 0; index < 200_000; index += 1) record(index % 100 === 50 ? 'hot' : `once-${index}`)
  const hot = sketch.find('limit', 'hot')
  expect(truth.get('hot')).toBe(2000)
  expect(hot?.countMin).toBe(2000)
  const others = sketch.counters.filter(({ name }) => name !== 'hot')
  expect(others).toHaveLength(COUNTERS - 1)
  expect(Math.max(...others.map(({ countMin }) => countMin))).toBe(1)
})

test('counts of names no longer seen reach 0, and their counters are reused', () => {
  const { sketch, record } = watched(2)
  for (let index = 0; index < 100; index += 1) record('old')
  for (let halvings = 0; halvings < 7; halvings += 1) sketch.halve()
  expect(sketch.find('limit', 'old')).toMatchObject({ count: 0, countMin: 0 })
  for (const name of ['a', 'b', 'b']) record(name)
  expect(sketch.find('limit', 'old')).toBeUndefined()
  expect(sketch.counters).toMatchObject([
    { name: 'b', count: 2, countMin: 2 },
    { name: 'a', count: 1, countMin: 1 },
  ])
})

test('the same name in two groups has two counters', () => {
  const sketch = new TopSketch<string>(2)
  sketch.record('minute', 'alice', 'A')
  sketch.record('hour', 'alice', 'B')
  sketch.record('hour', 'alice', 'B')
  expect(sketch.find('minute', 'alice')).toMatchObject({ count: 1, item: 'A' })
  sketch.record('day', 'alice', 'C')
  expect(sketch.find('minute', 'alice')).toBeUndefined()
  expect(sketch.find('day', 'alice')).toMatchObject({ count: 2, countMin: 1, item: 'C' })
  expect(sketch.find('hour', 'alice')).toMatchObject({ count: 2, countMin: 2, item: 'B' })
})
