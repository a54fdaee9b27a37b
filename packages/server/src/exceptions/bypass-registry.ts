// All bypass tokens known to this process, in memory. Verifies tokens by their hash: timing may depend on the hash,
// which reveals nothing about the token. Counts uses and rejected tokens.

import type { Bypass, Decision, Subject } from 'sluice'
import { hashBypassToken } from 'sluice/bypass'
import { BYPASS_FORMAT, type BypassToken } from './bypass-token.ts'

export const REJECTIONS = ['unknown', 'expired', 'revoked', 'pending'] as const
export type Rejection = (typeof REJECTIONS)[number]

/** Uses of one token since the last call of `takeUses`. */
export type BypassUses = {
  uses: number
  /** Milliseconds since the epoch. */
  lastMs: number
  /** The last use, for the audit log. */
  sample: BypassSample
}

export type BypassSample = {
  readonly request_id: string
  readonly method: string | null
  readonly endpoint: string | null
  /** Rules that did not apply. */
  readonly rules: readonly string[]
}

type Known = { readonly token: BypassToken; readonly bypass: Bypass; readonly endsMs: number }

const ENDPOINT_MAX = 256
const SAMPLE_RULES_MAX = 20

export class BypassRegistry {
  readonly #nowMs: () => number
  #byHash: ReadonlyMap<string, Known> = new Map()
  #names: ReadonlyMap<string, string> = new Map()
  #uses = new Map<string, BypassUses>()
  readonly #totals = new Map<string, number>()
  readonly #rejected: Record<Rejection, number> = { unknown: 0, expired: 0, revoked: 0, pending: 0 }

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs
  }

  replace(tokens: readonly BypassToken[]): void {
    this.#byHash = new Map(tokens.flatMap(knownSecrets))
    this.#names = new Map(tokens.map(({ bypassId, name }) => [bypassId, name]))
    for (const id of this.#totals.keys()) if (!this.#names.has(id)) this.#totals.delete(id)
  }

  /** Returns the bypass of a valid token. Counts any other token. */
  verify(secret: string): Bypass | undefined {
    const known = this.#find(secret)
    const rejection = known === undefined ? 'unknown' : rejectionOf(known, this.#nowMs())
    if (rejection === undefined) return known?.bypass
    this.#rejected[rejection] += 1
    return undefined
  }

  /** Whether a text is neither a valid token nor a secret that expired recently. Counts nothing. */
  isGuess(secret: string): boolean {
    return this.#find(secret) === undefined
  }

  /** Counts the use of a token by a decision that it changed. */
  used(bypassId: string, rules: readonly string[], decision: Decision, { method, path }: Subject): void {
    this.#totals.set(bypassId, (this.#totals.get(bypassId) ?? 0) + 1)
    const sample = {
      request_id: decision.requestId,
      method: method ?? null,
      endpoint: path?.slice(0, ENDPOINT_MAX) ?? null,
      rules: rules.slice(0, SAMPLE_RULES_MAX),
    }
    const known = this.#uses.get(bypassId)
    if (known === undefined) this.#uses.set(bypassId, { uses: 1, lastMs: this.#nowMs(), sample })
    else {
      known.uses += 1
      known.lastMs = this.#nowMs()
      known.sample = sample
    }
  }

  /** Returns the uses since the last call. */
  takeUses(): ReadonlyMap<string, BypassUses> {
    const uses = this.#uses
    this.#uses = new Map()
    return uses
  }

  /** Puts uses back that could not be written. */
  returnUses(uses: ReadonlyMap<string, BypassUses>): void {
    for (const [id, earlier] of uses) {
      const later = this.#uses.get(id)
      this.#uses.set(id, later === undefined ? earlier : { ...later, uses: later.uses + earlier.uses })
    }
  }

  /** Uses by this process, by name of the token. */
  get totals(): readonly (readonly [name: string, uses: number])[] {
    return [...this.#totals].map(([id, uses]) => [this.#names.get(id) ?? id, uses] as const)
  }

  get rejected(): Readonly<Record<Rejection, number>> {
    return this.#rejected
  }

  /** Number of tokens that are valid now. */
  get valid(): number {
    const nowMs = this.#nowMs()
    const valid = [...this.#byHash.values()].filter((known) => rejectionOf(known, nowMs) === undefined)
    return new Set(valid.map(({ token }) => token.bypassId)).size
  }

  #find(secret: string): Known | undefined {
    return BYPASS_FORMAT.test(secret) ? this.#byHash.get(hashBypassToken(secret)) : undefined
  }
}

function knownSecrets(token: BypassToken): [string, Known][] {
  const { bypassId: id, rules, paths, limitPerMinute, expiresMs } = token
  const bypass: Bypass = { id, rules: rules ?? undefined, paths: paths ?? undefined, limitPerMinute }
  return token.secrets.map(({ hash, endsMs }) => [
    hash,
    { token, bypass, endsMs: Math.min(expiresMs, endsMs ?? Number.POSITIVE_INFINITY) },
  ])
}

function rejectionOf({ token, endsMs }: Known, nowMs: number): Rejection | undefined {
  if (token.revoked) return 'revoked'
  if (endsMs <= nowMs) return 'expired'
  return token.state === 'active' ? undefined : 'pending' // a state of a newer version permits nothing
}
