// RateLimitRequest of Envoy's rate limit service: its shape and its caps. Read from gRPC by grpc/envoy/, from JSON by
// rate-limit-json.ts.

import { invalidRequest, ProblemError } from '../problems/problem.ts'

export type Entry = { readonly key: string; readonly value: string }

/** A limit that the client sends. Its unit is a number of UNITS. */
export type LimitOverride = { readonly requestsPerUnit: number; readonly unit: number }

export type Descriptor = {
  readonly entries: readonly Entry[]
  readonly limit: LimitOverride | undefined
  /** Hits to add; 0 reads the counter only. */
  readonly hits: number
  /** Hits that the descriptor brings itself, for dynamic metadata. */
  readonly ownHits?: number | undefined
}

export type RateLimitRequest = {
  readonly domain: string
  readonly descriptors: readonly Descriptor[]
  /** Hits of the request as sent, for dynamic metadata; 0 without any. */
  readonly hits: number
}

/** Envoy sends a handful of each. */
export const DESCRIPTORS_MAX = 128
export const ENTRIES_MAX = 64
/** Limits are 32-bit numbers, so more hits change no answer. */
const HITS_MAX: number = 2 ** 32

/** REQUEST_INVALID with one mistake. */
export function invalidField(field: string, value: unknown, fix: string): ProblemError {
  return new ProblemError(invalidRequest([{ field, value, fix }]))
}

/** Hits by the rules of the protocol: those of the descriptor, else those of the request, where 0 means 1. */
export function hitsOf(own: number | undefined, ofRequest: number): number {
  return own === undefined ? Math.min(HITS_MAX, Math.max(1, ofRequest)) : Math.min(HITS_MAX, own)
}

/** Throws REQUEST_INVALID. */
export function requireComplete({ domain, descriptors }: RateLimitRequest): void {
  if (domain === '') throw invalidField('domain', domain, 'give a name')
  const { length } = descriptors
  if (length === 0) throw invalidField('descriptors', [], 'give at least one')
  if (length > DESCRIPTORS_MAX) throw invalidField('descriptors', length, `give at most ${DESCRIPTORS_MAX}`)
  for (let index = 0; index < length; index += 1) requireEntries(descriptors[index]?.entries ?? [], index)
}

function requireEntries(entries: readonly Entry[], index: number): void {
  const { length } = entries
  if (length === 0) throw invalidField(`descriptors[${index}].entries`, [], 'give at least one')
  if (length > ENTRIES_MAX) throw invalidField(`descriptors[${index}].entries`, length, `give at most ${ENTRIES_MAX}`)
  for (let place = 0; place < length; place += 1) {
    if (entries[place]?.key === '') throw invalidField(`descriptors[${index}].entries[${place}].key`, '', 'give a key')
  }
}
