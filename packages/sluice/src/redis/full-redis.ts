// A Redis at its `maxmemory` under `noeviction` refuses scripts that write, before they have written anything. Buckets
// that exist are then updated by the same script with the flag `allow-oom`, and no new key is made: memory use stays
// where it is. Redis before 7 does not know the flag; there, every request finds the store full.

import { createHash } from 'node:crypto'
import type { LimiterError } from '../errors.ts'
import type { BucketName } from '../store/store.ts'
import { StoreFullError } from '../store/store-full.ts'
import type { KeyNames } from './key.ts'
import type { Request } from './request.ts'
import { APPLY, type Script } from './scripts.generated.ts'

const TEXT = `#!lua flags=allow-oom\n${APPLY.text}`

export const APPLY_WHEN_FULL: Script = { text: TEXT, sha1: createHash('sha1').update(TEXT).digest('hex') }

/** How long batches go the way of a full Redis before the usual way is tried again. */
export const FULL_MS = 1000

/** Redis 7 begins its message with the code, Redis 6 quotes it. */
const OUT_OF_MEMORY = /(^|-)OOM /
/** What a Redis says to the first line of APPLY_WHEN_FULL if it does not know flags. */
const NO_FLAGS = /unexpected symbol near '#'/

export function isOutOfMemory(error: unknown): boolean {
  return error instanceof Error && OUT_OF_MEMORY.test(error.message)
}

export function knowsNoFlags(error: unknown): boolean {
  return error instanceof Error && NO_FLAGS.test(error.message)
}

/** The buckets that a request may have to make: what comes back to one that does not exist is dropped. */
export function writtenBy(request: Request): readonly BucketName[] {
  if (request.verb === 'take') return request.charges
  return request.verb === 'give' ? request.gives.filter(({ units }) => units < 0) : []
}

export function keyNameOf(names: KeyNames, { limit, owner, detail }: BucketName): string {
  return names.keyOf(limit, owner, detail)
}

/** Whether a request needs a key that does not exist yet: a give that has to be remembered. */
export function makesKey(request: Request): boolean {
  return request.verb === 'give' && request.once !== undefined
}

/** The error of a request that a full Redis cannot carry out. */
export function errorWhenFull(request: Request, isAbsent: (bucket: BucketName) => boolean): LimiterError {
  if (request.verb !== 'take') return new StoreFullError('Redis is out of memory (maxmemory): nothing was changed', [])
  const absent = request.charges.map(isAbsent)
  return new StoreFullError('Redis is out of memory (maxmemory), so no bucket can be made', absent)
}
