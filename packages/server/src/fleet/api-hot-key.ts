// Hot keys as the API shows them, merged over processes. Clients appear as keyed hashes.

import type { HotKey } from 'sluice'
import { bucketHash, type KeyHash } from '../log.ts'

export type ApiHotKey = {
  readonly rule_id: string
  readonly name: string
  readonly key_hash: string
  readonly checks_per_second: number
  readonly share: number
}

/** Merges the reports of several workers by key, hottest first. */
export function mergeHotKeys(ofWorkers: readonly (readonly ApiHotKey[])[]): ApiHotKey[] {
  // Any key gives the total rate of its worker; without a hot key it is unknown.
  const rates = ofWorkers.map(([first]) => (first === undefined ? 0 : first.checks_per_second / first.share))
  const total = rates.reduce((sum, rate) => sum + rate, 0)
  const merged = new Map<string, ApiHotKey>()
  for (const key of ofWorkers.flat()) {
    const id = JSON.stringify([key.rule_id, key.name, key.key_hash])
    const checks_per_second = key.checks_per_second + (merged.get(id)?.checks_per_second ?? 0)
    merged.set(id, { ...key, checks_per_second, share: checks_per_second / total })
  }
  return [...merged.values()].sort((one, other) => other.checks_per_second - one.checks_per_second)
}

export function apiHotKey(key: HotKey, keyHash: KeyHash): ApiHotKey {
  const { ruleId: rule_id, name, checksPerSecond: checks_per_second, share } = key
  return { rule_id, name, key_hash: bucketHash(keyHash, key), checks_per_second, share }
}
