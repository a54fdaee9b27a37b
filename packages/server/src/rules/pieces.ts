// A value with a long list of rules, as texts of JSON short enough to be read one at a time. Parsed at once, ten
// thousand rules would hold up all checks for as long as that takes.

import { mapped, type Sliced } from 'sluice'

export type Pieces = {
  /** The value without its rules; undefined where there is none. */
  readonly frame: string | undefined
  readonly pieces: readonly string[]
}

const RULES_PER_PIECE = 50

export function inPieces(value: unknown): Pieces {
  const list = listIn(value)
  const pieces: string[] = []
  for (let start = 0; start < list.length; start += RULES_PER_PIECE) {
    pieces.push(JSON.stringify(list.slice(start, start + RULES_PER_PIECE)))
  }
  return { frame: JSON.stringify(list === value ? [] : withRules(value, [])), pieces }
}

export function* joined({ frame, pieces }: Pieces): Sliced<unknown> {
  const value: unknown = frame === undefined ? undefined : JSON.parse(frame)
  const rules = (yield* mapped(pieces, (piece) => JSON.parse(piece) as unknown[])).flat()
  return Array.isArray(value) ? rules : withRules(value, rules)
}

/** The list itself, or the one under `rules`. */
function listIn(value: unknown): readonly unknown[] {
  const list = hasRules(value) ? value.rules : value
  return Array.isArray(list) ? list : []
}

function withRules(value: unknown, rules: readonly unknown[]): unknown {
  return hasRules(value) && Array.isArray(value.rules) ? { ...value, rules } : value
}

function hasRules(value: unknown): value is { readonly rules: unknown } {
  return typeof value === 'object' && value !== null && 'rules' in value
}
