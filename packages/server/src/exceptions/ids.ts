// Ids of exceptions: a prefix, the time, a counter and random bits, so that ids sort by age.

import { randomBytes } from 'node:crypto'

export type IdPrefix = 'ovr' | 'byp' | 'sig' | 'fac'

export const EXCEPTION_ID: RegExp = /^[a-z]{3}_[0-9a-f]{8,32}$/

let lastMs = 0
let counter = 0

/** Ids of one process sort by creation; those of different nodes by their clocks. */
export function newId(prefix: IdPrefix, at: Date): string {
  const ms = at.getTime()
  counter = ms === lastMs ? (counter + 1) & 0xffff : 0
  lastMs = ms
  return `${prefix}_${hex(ms, 12)}${hex(counter, 4)}${randomBytes(4).toString('hex')}`
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, '0')
}
