// Built-in detectors of abuse, off by default: a key that is refused very often, and an address with many distinct
// users or API keys. Each process counts its own requests, in windows and in bounded memory. Errs low: a flood of
// made-up keys hides some keys, but never accuses one.

import { bucketOf, type Decision, type Severity, type Subject, TopSketch } from 'sluice'
import { canonicalAddress } from 'sluice/http'
import type { Key } from './key.ts'

/** More than `count` in `windowMs`. */
export type Threshold = { readonly count: number; readonly windowMs: number }

export const DETECTED_KINDS = ['many_refusals', 'many_keys'] as const
export type DetectedKind = (typeof DETECTED_KINDS)[number]

export type Detection = {
  readonly kind: DetectedKind
  readonly key: Key
  readonly severity: Severity
  readonly evidence: Evidence
}

export type Evidence = {
  readonly count: number
  readonly threshold: number
  readonly window_seconds: number
  /** Rule and endpoint of the request that crossed the threshold. */
  readonly rule_id: string | null
  readonly endpoint: string | null
}

export type DetectorSettings = {
  /** Refusals of one key. Undefined: off. */
  readonly detectRefusals: Threshold | undefined
  /** Distinct users or API keys of one address. Undefined: off. */
  readonly detectKeys: Threshold | undefined
}

const SEVERITY: Severity = 'medium'
/** Keys whose refusals are counted at a time. */
const KEYS_MAX = 2000
/** Entries over all addresses. */
const ENTRIES_MAX = 200_000
const ENDPOINT_MAX = 256

export class Detectors {
  readonly #refusals: RefusalCounter | undefined
  readonly #keys: DistinctKeys | undefined

  constructor({ detectRefusals, detectKeys }: DetectorSettings, ipv6Prefix: number) {
    this.#refusals = detectRefusals && new RefusalCounter(detectRefusals)
    this.#keys = detectKeys && new DistinctKeys(detectKeys, ipv6Prefix)
  }

  /** Undefined if this request crosses no threshold. */
  record(subject: Subject, decision: Decision, nowMs: number): Detection | undefined {
    return this.#refusals?.record(subject, decision, nowMs) ?? this.#keys?.record(subject, decision, nowMs)
  }
}

class RefusalCounter {
  readonly #threshold: Threshold
  #sketch = new TopSketch<undefined>(KEYS_MAX)
  #window = -1

  constructor(threshold: Threshold) {
    this.#threshold = threshold
  }

  record({ path }: Subject, decision: Decision, nowMs: number): Detection | undefined {
    if (decision.allowed) return undefined
    const bucket = bucketOf(decision)
    if (bucket === undefined || bucket.fact === '' || bucket.fact === 'endpoint') return undefined // many clients
    const window = Math.floor(nowMs / this.#threshold.windowMs)
    if (window !== this.#window) this.#sketch = new TopSketch(KEYS_MAX)
    this.#window = window
    const { fact, owner, ruleId } = bucket
    this.#sketch.record(fact, owner, undefined)
    const count = this.#sketch.find(fact, owner)?.countMin ?? 0
    // Equal, so that a key is reported once per window.
    if (count !== this.#threshold.count + 1) return undefined
    const evidence = evidenceOf(this.#threshold, count, ruleId, path)
    return { kind: 'many_refusals', key: { fact, owner }, severity: SEVERITY, evidence }
  }
}

class DistinctKeys {
  readonly #threshold: Threshold
  readonly #ipv6Prefix: number
  #byAddress = new Map<string, Set<string>>()
  #entries = 0
  #window = -1

  constructor(threshold: Threshold, ipv6Prefix: number) {
    this.#threshold = threshold
    this.#ipv6Prefix = ipv6Prefix
  }

  record({ ip, user, apiKey, path }: Subject, { ruleId }: Decision, nowMs: number): Detection | undefined {
    const name = user ?? apiKey
    if (ip === undefined || name === undefined) return undefined
    const window = Math.floor(nowMs / this.#threshold.windowMs)
    if (window !== this.#window) {
      this.#byAddress = new Map()
      this.#entries = 0
    }
    this.#window = window
    const owner = canonicalAddress(ip, this.#ipv6Prefix) ?? ip
    const names = this.#byAddress.get(owner) ?? new Set()
    const isFull = this.#entries >= ENTRIES_MAX || names.size > this.#threshold.count
    if (isFull || names.has(name)) return undefined
    this.#byAddress.set(owner, names.add(name))
    this.#entries += 1
    if (names.size <= this.#threshold.count) return undefined
    const evidence = evidenceOf(this.#threshold, names.size, ruleId, path)
    return { kind: 'many_keys', key: { fact: 'ip', owner }, severity: SEVERITY, evidence }
  }
}

function evidenceOf(
  { count: threshold, windowMs }: Threshold,
  count: number,
  ruleId: string | null,
  path: string | undefined,
): Evidence {
  const endpoint = path?.slice(0, ENDPOINT_MAX) ?? null
  return { count, threshold, window_seconds: windowMs / 1000, rule_id: ruleId, endpoint }
}
