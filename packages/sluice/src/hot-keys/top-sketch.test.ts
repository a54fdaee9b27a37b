import { seededRandom } from 'sluice/testing'
import { describe, expect, test } from 'vitest'
import { TopSketch } from './top-sketch.ts'

const COUNTERS = 200

/** A sketch beside an exact count of everything. */
function watched(countersMax = COUNTERS) {
  const sketch = new TopSketch<undefined>(countersMax)
  const truth = new Map<string, number>()
  const see = (name: string) => {
    sketch.see('limit', name, undefined)
    truth.set(name, (truth.get(name) ?? 0) + 1)
  }
  const halve = () => {
    sketch.halve()
    for (const [name, count] of truth) truth.set(name, count / 2)
  }
  return { sketch, truth, see, halve }
}

/** Names by Zipf's law, nearly: of `keys` names, the nth is seen about 1/n as often as the first. */
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
    const { sketch, truth, see } = watched(50)
    const next = zipf(seed, 5000)
    const sightings = 30_000
    for (let index = 0; index < sightings; index += 1) see(next())
    expect(sketch.counters).toHaveLength(50)
    for (const { name, count, sure } of sketch.counters) {
      const seen = truth.get(name) ?? 0
      expect(sure, name).toBeLessThanOrEqual(seen)
      expect(seen, name).toBeLessThanOrEqual(count)
      expect(count - sure, name).toBeLessThanOrEqual(sightings / 50)
    }
    const often = [...truth].filter(([, seen]) => seen > sightings / 50)
    expect(often.length).toBeGreaterThan(3)
    for (const [name] of often) expect(sketch.find('limit', name), name).toBeDefined()
  })

  test.each([1, 2, 3])('hold for halved counts too, within one sighting (seed %i)', (seed) => {
    const { sketch, truth, see, halve } = watched(50)
    const next = zipf(seed, 5000)
    for (let round = 0; round < 40; round += 1) {
      for (let index = 0; index < 997; index += 1) see(next())
      if (round > 0) halve()
    }
    for (const { name, count, sure } of sketch.counters) {
      const seen = truth.get(name) ?? 0
      expect(sure, name).toBeLessThanOrEqual(seen)
      expect(seen, name).toBeLessThan(count + 1)
    }
  })
})

test('the true top ten of a Zipf load of 100,000 names are found, in their order', () => {
  const { sketch, truth, see } = watched()
  const next = zipf(4)
  for (let index = 0; index < 300_000; index += 1) see(next())
  const found = topOf(
    sketch.counters.map(({ name, sure }) => [name, sure] as const),
    10,
  )
  expect(found).toEqual(topOf(truth, 10))
})

test('a flood of names that come once does not evict one that comes often', () => {
  const { sketch, truth, see } = watched()
  for (let index = 0; index < 200_000; index += 1) see(index % 100 === 50 ? 'hot' : `once-${index}`)
  const hot = sketch.find('limit', 'hot')
  expect(truth.get('hot')).toBe(2000)
  expect(hot?.sure).toBe(2000)
  const others = sketch.counters.filter(({ name }) => name !== 'hot')
  expect(others).toHaveLength(COUNTERS - 1)
  expect(Math.max(...others.map(({ sure }) => sure))).toBe(1)
})

test('what is seen no more comes to nothing, and makes room', () => {
  const { sketch, see } = watched(2)
  for (let index = 0; index < 100; index += 1) see('old')
  for (let halvings = 0; halvings < 7; halvings += 1) sketch.halve()
  expect(sketch.find('limit', 'old')).toMatchObject({ count: 0, sure: 0 })
  for (const name of ['a', 'b', 'b']) see(name)
  expect(sketch.find('limit', 'old')).toBeUndefined()
  expect(sketch.counters).toMatchObject([
    { name: 'b', count: 2, sure: 2 },
    { name: 'a', count: 1, sure: 1 },
  ])
})

test('the same name in two groups is two', () => {
  const sketch = new TopSketch<string>(2)
  sketch.see('minute', 'alice', 'A')
  sketch.see('hour', 'alice', 'B')
  sketch.see('hour', 'alice', 'B')
  expect(sketch.find('minute', 'alice')).toMatchObject({ count: 1, what: 'A' })
  sketch.see('day', 'alice', 'C')
  expect(sketch.find('minute', 'alice')).toBeUndefined()
  expect(sketch.find('day', 'alice')).toMatchObject({ count: 2, sure: 1, what: 'C' })
  expect(sketch.find('hour', 'alice')).toMatchObject({ count: 2, sure: 2, what: 'B' })
})
