// All tokens known to this node, in memory: authentication needs no round trip and survives an outage of the database.

import { roleAllows } from './roles.ts'
import type { Token } from './token.ts'

export class TokenRegistry {
  #byHash: ReadonlyMap<string, Token> = new Map()
  #uses = new Map<string, number>()

  replace(tokens: readonly Token[]): void {
    this.#byHash = new Map(tokens.map((token) => [token.hash, token]))
  }

  /** Finds a token by its SHA-256. Timing may depend on the hash, which reveals nothing about the token. */
  find(hash: string): Token | undefined {
    return this.#byHash.get(hash)
  }

  /** Returns which tokens were used and when (ms) since the last call. */
  takeUses(): ReadonlyMap<string, number> {
    const uses = this.#uses
    this.#uses = new Map()
    return uses
  }

  used({ tokenId }: Token, nowMs: number): void {
    this.#uses.set(tokenId, nowMs)
  }

  /** Whether any valid token may make checks. */
  someMayCheck(nowMs: number): boolean {
    return [...this.#byHash.values()].some(({ role, revokedAt, expiresAt }) => {
      const ended = revokedAt !== null || (expiresAt !== null && Date.parse(expiresAt) <= nowMs)
      return !ended && roleAllows(role, 'check')
    })
  }

  get size(): number {
    return this.#byHash.size
  }
}
