// All tokens that this node knows, in memory: who is asking is known at once, and still while the database is away.

import { type Token, tokenHash } from './token.ts'

export class TokenBook {
  #byHash: ReadonlyMap<string, Token> = new Map()

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

  get size(): number {
    return this.#byHash.size
  }
}
