import { describe, expect, test } from 'vitest'
import { compileLimit } from '../algorithms/limit.ts'
import { SLOTS } from './slot.ts'
import { isSlotGroups, SlotGroups } from './slot-groups.ts'

const LIMIT = compileLimit({ id: 'r', fact: 'user', algorithm: 'fixed_window', units: 1, windowUs: 1_000_000 })
const owners = (count: number) =>
  Array.from({ length: count }, (_, index) => ({ limit: LIMIT, owner: `user-${index}` }))

describe.each([1, 16, 64, 1024])('%d slot groups', (count) => {
  const groups = new SlotGroups('secret', count)

  test('each has a slot in its own equal range of all slots', () => {
    const ranges = groups.slots.map((slot) => Math.floor((slot * count) / SLOTS))
    expect(ranges).toEqual(Array.from({ length: count }, (_, range) => range))
  })

  test('owners are spread evenly over them', () => {
    const counts = new Map(groups.slots.map((slot) => [slot, 0]))
    for (const owner of owners(200 * count)) {
      const slot = groups.slotOf(owner)
      counts.set(slot, (counts.get(slot) ?? 0) + 1)
    }
    expect(counts.size).toBe(count)
    for (const owned of counts.values()) expect(Math.abs(owned - 200)).toBeLessThan(100)
  })
})

test('16 groups are the default', () => {
  expect(new SlotGroups('secret').slots).toEqual(new SlotGroups('secret', 16).slots)
})

test('another secret groups owners differently', () => {
  const slots = (secret: string) => owners(100).map((owner) => new SlotGroups(secret).slotOf(owner))
  expect(slots('another')).not.toEqual(slots('secret'))
})

test('four consecutive shards are in four different quarters of the slots', () => {
  const { shards = [] } = compileLimit({ id: 'r', algorithm: 'fixed_window', units: 8, windowUs: 1_000_000, shards: 4 })
  const groups = new SlotGroups('secret', 64)
  const quarters = shards.map((limit) => Math.floor((groups.slotOf({ limit, owner: 'a' }) * 4) / SLOTS))
  expect(quarters.sort()).toEqual([0, 1, 2, 3])
})

test.each([0, 3, 2048, 1.5, -16, '16', Number.NaN, undefined])('%s is not a valid number of slot groups', (count) => {
  expect(isSlotGroups(count)).toBe(false)
})
