// Places for work of which a process does little at a time. A token gets a share of them, so that no token takes the
// places of all others. A session of the dashboard counts as its token.

import { ProblemError, problem } from './problems/problem.ts'

export type PlaceOptions = {
  readonly max: number
  readonly perTokenMax: number
  /** Problem when all places are taken; `<code>_OF_TOKEN` when the token has its share. */
  readonly code: 'TOO_MANY_STREAMS' | 'TOO_MANY_SIMULATIONS' | 'TOO_MANY_TEXTS'
  /** Such as `streams open`, and what frees one. */
  readonly work: string
  readonly fix: string
}

export class TokenPlaces {
  readonly #options: PlaceOptions
  /** Token of each place that is taken. */
  readonly #tokens: string[] = []

  constructor(options: PlaceOptions) {
    this.#options = options
  }

  /** Takes a place, and returns the function that frees it, to be called once. Throws ProblemError. */
  take(token: string): () => void {
    const { max, perTokenMax, code, work, fix } = this.#options
    const own = this.#tokens.filter((other) => other === token).length
    if (own >= perTokenMax) {
      const detail = `This token has ${own} ${work} on this process, the most for one token: ${fix}.`
      throw new ProblemError(problem(`${code}_OF_TOKEN`, detail))
    }
    if (this.#tokens.length >= max) {
      throw new ProblemError(problem(code, `This process has ${max} ${work}, the most that it accepts: retry later.`))
    }
    this.#tokens.push(token)
    return () => void this.#tokens.splice(this.#tokens.indexOf(token), 1)
  }
}
