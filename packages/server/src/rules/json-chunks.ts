// Splits a value with a long list of rules into chunks of JSON that are parsed one at a time, because parsing ten
// thousand rules in one call would block all checks.

import { mapped, type Sliced } from 'sluice'

export type JsonChunks = {
  /** The value without its rules; undefined if there is no value. */
  readonly envelope: string | undefined
  readonly chunks: readonly string[]
}

const RULES_PER_CHUNK = 50

export function toChunks(value: unknown): JsonChunks {
  const list = listIn(value)
  const chunks: string[] = []
  for (let start = 0; start < list.length; start += RULES_PER_CHUNK) {
    chunks.push(JSON.stringify(list.slice(start, start + RULES_PER_CHUNK)))
  }
  return { envelope: JSON.stringify(list === value ? [] : withRules(value, [])), chunks }
}

export function* fromChunks({ envelope, chunks }: JsonChunks): Sliced<unknown> {
  const value: unknown = envelope === undefined ? undefined : JSON.parse(envelope)
  const rules = (yield* mapped(chunks, (chunk) => JSON.parse(chunk) as unknown[])).flat()
  return Array.isArray(value) ? rules : withRules(value, rules)
}

/** Returns the value if it is a list, or the list under `rules`. */
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
