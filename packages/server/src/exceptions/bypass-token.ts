// Bypass tokens as nodes know them: requests that carry one skip rules, up to a rate of their own. Only the SHA-256
// of a token is stored.

/** Format of tokens of `sluice/bypass`. Other texts cannot be tokens and are not hashed. */
export const BYPASS_FORMAT: RegExp = /^slb_[\w-]{43}$/

export const BYPASS_STATES = ['pending', 'active'] as const

export type BypassState = (typeof BYPASS_STATES)[number]

export type BypassToken = {
  readonly bypassId: string
  readonly name: string
  readonly state: BypassState
  /** null: every rule. */
  readonly rules: readonly string[] | null
  /** Patterns as in rules; null: every path. */
  readonly paths: readonly string[] | null
  readonly limitPerMinute: number
  /** Milliseconds since the epoch. */
  readonly expiresMs: number
  readonly revoked: boolean
  /** SHA-256 of each secret; `endsMs` null: as long as the token is valid. */
  readonly secrets: readonly { readonly hash: string; readonly endsMs: number | null }[]
}
