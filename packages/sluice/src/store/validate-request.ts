// Validates requests before a store handles them. A malformed request fails alone: later it would share a batch with
// other requests, or corrupt buckets in memory.

import { optionInvalid } from '../errors.ts'
import type { BucketName, Charge, ChargeKind, Give, Take } from './store.ts'

const KINDS: Readonly<Record<ChargeKind, true>> = {
  enforce: true,
  shadow: true,
  force: true,
  hold: true,
  counterfactual: true,
}
/** Highest pair id. Equals PAIRS_MAX of redis/wire.ts, less 1. */
export const PAIR_MAX = 65_535

export function checkTake({ charges, op, gives, resets }: Take): void {
  checkCharges(charges)
  if (resets !== undefined) for (const bucket of resets) checkBucket(bucket)
  if (op !== undefined) checkOpId(op.id)
  if (gives !== undefined) for (const give of gives) checkGive(give)
}

export function checkCharges(charges: readonly Charge[]): void {
  for (const charge of charges) {
    checkBucket(charge)
    const { min, max, kind, pair } = charge
    if (!Number.isSafeInteger(min) || min < 1) throw optionInvalid('min', min, 'must be a whole number of at least 1')
    if (!Number.isSafeInteger(max) || max < min) throw optionInvalid('max', max, 'must be a whole number, min or more')
    if (KINDS[kind] !== true) throw optionInvalid('kind', kind, `must be one of ${Object.keys(KINDS).join(', ')}`)
    if (pair !== undefined || kind === 'counterfactual') checkPair(pair)
  }
}

function checkPair(pair: number | undefined): void {
  if (pair !== undefined && Number.isInteger(pair) && pair >= 1 && pair <= PAIR_MAX) return
  throw optionInvalid('pair', pair, `must be a whole number from 1 to ${PAIR_MAX}`)
}

export function checkGives(gives: readonly Give[], opId: string | undefined): void {
  for (const give of gives) checkGive(give)
  if (opId !== undefined) checkOpId(opId)
}

function checkGive(give: Give): void {
  checkBucket(give)
  const { units, bookedUs, settled = 0 } = give
  if (!Number.isSafeInteger(units)) throw optionInvalid('units', units, 'must be a whole number')
  if (!Number.isFinite(bookedUs)) throw optionInvalid('bookedUs', bookedUs, 'must be a time in microseconds')
  if (!Number.isSafeInteger(settled)) throw optionInvalid('settled', settled, 'must be a whole number')
}

/** The error does not show the value: an owner may be an API key. */
export function checkBucket({ owner, detail }: BucketName): void {
  if (typeof owner !== 'string') throw optionInvalid('owner', owner, 'must be a string')
  if (typeof detail !== 'string') throw optionInvalid('detail', detail, 'must be a string')
}

function checkOpId(id: string): void {
  if (typeof id !== 'string' || id === '') throw optionInvalid('op.id', id, 'must be a non-empty string')
}
