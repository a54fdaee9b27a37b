// Keyed hashes in the place of client keys: equal keys stay equal, and a query that knows the key finds them. The
// digits are those of the log and of `key_hash` in the API; the prefix tells them from a key in clear.

import type { DecidingBucket } from 'sluice'
import { bucketHash, type KeyHash } from '../log.ts'

const PREFIX = 'hmac:'

export function hashedKey(hash: KeyHash, fact: string, value: string): string {
  return PREFIX + hash(fact, value)
}

/** Rule, limit, fact and key, separated by colons. A global bucket has no key. */
export function bucketKey(bucket: BucketNames, hash: KeyHash | undefined): string {
  const { ruleId, name, fact, owner, detail } = bucket
  const inClear = owner + (detail === '' ? '' : `:${detail}`)
  const key = hash === undefined || inClear === '' ? inClear : PREFIX + bucketHash(hash, bucket)
  return [ruleId, name, fact, key].join(':')
}

type BucketNames = Pick<DecidingBucket, 'ruleId' | 'name' | 'fact' | 'owner' | 'detail'>
