// Text that identifies a bucket: in plain text, or with a keyed hash of its key. Same hashes as in the log and in
// `key_hash` of the API; the prefix distinguishes them from plain keys.

import type { DecidingBucket } from 'sluice'
import { bucketHash, type KeyHash } from '../log.ts'

export const HASH_PREFIX = 'hmac:'

/** Rule, limit, fact and key, separated by colons. A global bucket has no key; without a bucket all are empty. */
export function bucketKey(bucket: DecidingBucket = NO_BUCKET, hash: KeyHash | undefined): string {
  const { ruleId, name, fact, owner, detail } = bucket
  const inClear = owner + (detail === '' ? '' : `:${detail}`)
  const key = hash === undefined || inClear === '' ? inClear : HASH_PREFIX + bucketHash(hash, bucket)
  return [ruleId, name, fact, key].join(':')
}

const NO_BUCKET = { ruleId: '', name: '', fact: '', owner: '', detail: '' }
