// All tokens that this node knows, in memory: who is asking is known at once, and still while the database is away.

import { roleAllows } from './roles.ts'
import type { Token } from './token.ts'

export class TokenBook {
  #byHash: ReadonlyMap<string, Token> = new Map()
  #uses = new Map<string, number>()

  /** Takes the place of all that was known. */
  replace(tokens: readonly Token[]): void {
    this.#byHash = new Map(tokens.map((token) => [token.hash, token]))
  }

  /** Finds a token by its SHA-256: the time of the lookup may depend on the hash, and tells nothing about the token. */
  find(hash: string): Token | undefined {
    return this.#byHash.get(hash)
  }

  /** Which tokens were used and when, in milliseconds, since this was last asked. */
  takeUses(): ReadonlyMap<string, number> {
    const uses = this.#uses
    this.#uses = new Map()
    return uses
  }

  used({ tokenId }: Token, nowMs: number): void {
    this.#uses.set(tokenId, nowMs)
  }

  /** Whether some token is good for checks at this time. */
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
