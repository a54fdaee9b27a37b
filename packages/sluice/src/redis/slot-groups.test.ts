// Owners are spread over few slots, and those over all that there are.

import { expect, test } from 'vitest'
import { compileLimit } from '../algorithms/limit.ts'
import { SLOTS } from './slot.ts'
import { SlotGroups } from './slot-groups.ts'

const GROUPS = new SlotGroups('secret')
const LIMIT = compileLimit({ id: 'r', fact: 'user', algorithm: 'fixed_window', units: 1, windowUs: 1_000_000 })

test('each of the 16 slots lies in another sixteenth of all', () => {
  const parts = GROUPS.slots.map((slot) => Math.floor((slot * 16) / SLOTS))
  expect(parts).toEqual(Array.from({ length: 16 }, (_, part) => part))
})

test('owners are spread evenly over them', () => {
  const counts = new Map(GROUPS.slots.map((slot) => [slot, 0]))
  for (let index = 0; index < 16_000; index += 1) {
    const slot = GROUPS.slotOf({ limit: LIMIT, owner: `user-${index}` })
    counts.set(slot, (counts.get(slot) ?? 0) + 1)
  }
  expect(counts.size).toBe(16)
  for (const count of counts.values()) expect(Math.abs(count - 1000)).toBeLessThan(150)
})

test('another secret groups them otherwise', () => {
  const others = new SlotGroups('another')
  const owners = Array.from({ length: 100 }, (_, index) => ({ limit: LIMIT, owner: `user-${index}` }))
  expect(owners.map((owner) => others.slotOf(owner))).not.toEqual(owners.map((owner) => GROUPS.slotOf(owner)))
})
