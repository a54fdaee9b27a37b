// Limits and buckets as the store applies them for leased rules.

import type { Limit } from '../algorithms/limit.ts'
import type { BucketName } from '../store/store.ts'

export function storeLimit(limit: Limit): Limit {
  return limit.lease === undefined ? limit : limit.lease.storeLimit
}

export function withStoreLimit<B extends BucketName>(bucket: B): B {
  return isStrict(bucket) ? bucket : { ...bucket, limit: storeLimit(bucket.limit) }
}

/** Whether no units of the bucket may be held. */
export function isStrict({ limit }: BucketName): boolean {
  return limit.lease === undefined
}
