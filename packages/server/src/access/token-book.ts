// All tokens that this node knows, in memory: who is asking is known at once, and still while the database is away.

import { type Token, tokenHash } from './token.ts'

export class TokenBook {
  #byHash: ReadonlyMap<string, Token> = new Map()
  #uses = new Map<string, number>()

  /** Takes the place of all that was known. */
  replace(tokens: readonly Token[]): void {
    this.#byHash = new Map(tokens.map((token) => [token.hash, token]))
  }

  /**
   * Found by its hash: how long that takes tells something about hashes, which nobody can choose, and nothing about
   * tokens.
   */
  find(secret: string): Token | undefined {
    return this.#byHash.get(tokenHash(secret))
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

  get size(): number {
    return this.#byHash.size
  }
}
