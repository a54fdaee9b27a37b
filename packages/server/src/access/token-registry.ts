// All tokens known to this node, in memory: authentication needs no round trip and survives an outage of the database.

import { type Role, roleAllows } from './roles.ts'
import { endedReason, type Token } from './token.ts'

export class TokenRegistry {
  #byHash: ReadonlyMap<string, Token> = new Map()
  #byId: ReadonlyMap<string, Token> = new Map()
  #uses = new Map<string, number>()

  replace(tokens: readonly Token[]): void {
    this.#byHash = new Map(tokens.map((token) => [token.hash, token]))
    this.#byId = new Map(tokens.map((token) => [token.tokenId, token]))
  }

  /** Finds a token by its SHA-256. Timing may depend on the hash, which reveals nothing about the token. */
  find(hash: string): Token | undefined {
    return this.#byHash.get(hash)
  }

  findById(tokenId: string): Token | undefined {
    return this.#byId.get(tokenId)
  }

  /** Whether any valid token may see the dashboard. */
  someMayView(nowMs: number): boolean {
    return this.#some('viewer', nowMs)
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
    return this.#some('check', nowMs)
  }

  #some(needed: Role, nowMs: number): boolean {
    return [...this.#byHash.values()].some((token) => {
      return endedReason(token, nowMs) === undefined && roleAllows(token.role, needed)
    })
  }

  get size(): number {
    return this.#byHash.size
  }
}
