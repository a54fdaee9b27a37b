// Limits and buckets as the store applies them for leased rules.

import type { Limit } from '../algorithms/limit.ts'
import type { BucketName } from '../store/store.ts'

export function storeLimit(limit: Limit): Limit {
  return limit.lease === undefined ? limit : limit.lease.storeLimit
}

export function withStoreLimit<B extends BucketName>(bucket: B): B {
  return isUnleased(bucket) ? bucket : { ...bucket, limit: storeLimit(bucket.limit) }
}

/** Whether no units of the bucket may be held: the rule is strict, or its limit is too small. */
export function isUnleased({ limit }: BucketName): boolean {
  return limit.lease === undefined
}
