// Handles a Redis that has reached `maxmemory` with `noeviction`: it refuses to start any script that may write. The
// same script with the flag `allow-oom` updates existing buckets and creates no key, so memory use does not grow. Redis
// before 7 does not support the flag: every take fails with STORE_FULL there.

import type { LimiterError } from '../errors.ts'
import { hex } from '../sha-256.ts'
import type { BucketName } from '../store/store.ts'
import { StoreFullError } from '../store/store-full-error.ts'
import type { KeyNames } from './key.ts'
import type { Request } from './request.ts'
import { APPLY, type Script } from './scripts.generated.ts'

const TEXT = `#!lua flags=allow-oom\n${APPLY.text}`

let scriptWhenFull: Promise<Script> | undefined

/** The script with the flag. Its SHA-1 is computed on first use. */
export function applyWhenFull(): Promise<Script> {
  scriptWhenFull ??= crypto.subtle
    .digest('SHA-1', new TextEncoder().encode(TEXT))
    .then((sha1) => ({ text: TEXT, sha1: hex(new Uint8Array(sha1)) }))
  return scriptWhenFull
}

/** Time for which batches are sent with `allow-oom`, before the normal script is tried again. */
export const FULL_MS = 1000

/** Redis 7 begins the message with the code, Redis 6 quotes it. */
const OUT_OF_MEMORY = /(^|-)OOM /
/** Reported for the first line of TEXT by a Redis that does not support script flags. */
const NO_FLAGS = /unexpected symbol near '#'/

export function isOutOfMemory(error: unknown): boolean {
  return error instanceof Error && OUT_OF_MEMORY.test(error.message)
}

export function rejectsFlags(error: unknown): boolean {
  return error instanceof Error && NO_FLAGS.test(error.message)
}

/** Gives to absent buckets are dropped, except for negative ones. */
export function bucketsItMayCreate(request: Request): readonly BucketName[] {
  if (request.verb === 'take') return request.charges
  return request.verb === 'give' ? request.gives.filter(({ units }) => units < 0) : []
}

export function keyNameOf(names: KeyNames, { limit, owner, detail }: BucketName): string {
  return names.keyOf(limit, owner, detail)
}

/** Whether a request creates an idempotency record. */
export function createsRecord(request: Request): boolean {
  return request.verb === 'give' && request.idempotencyKey !== undefined
}

export function errorWhenFull(request: Request, isAbsent: (bucket: BucketName) => boolean): LimiterError {
  if (request.verb !== 'take') return new StoreFullError('Redis is out of memory (maxmemory): nothing was changed', [])
  const absent = request.charges.map(isAbsent)
  return new StoreFullError('Redis is out of memory (maxmemory): no bucket can be created', absent)
}
