// Rejects unknown options and suggests the intended name: a mistyped option would otherwise be ignored.

import { optionInvalid, optionsInvalid } from './errors.ts'
import { suggestion } from './nearest.ts'

/** One entry per field of an options type: a new option does not compile until it is listed. */
export type KnownFields<Options> = Readonly<Record<keyof Required<Options>, true>>

/** Throws OPTION_INVALID unless `options` is an object with known fields only. `form`: example for the error. */
export function requireKnown<Options>(options: unknown, fields: KnownFields<Options>, form: string): void {
  if (!isObject(options)) throw optionInvalid('options', options, `pass ${form}`)
  const known = Object.keys(fields)
  const unknown = Object.keys(options).filter((field) => options[field] !== undefined && !known.includes(field))
  const fieldErrors = unknown.map((field) => ({ field, value: options[field], fix: unknownOption(field, known) }))
  if (fieldErrors.length > 0) throw optionsInvalid(fieldErrors)
}

/** Fix for an unknown option. */
export function unknownOption(field: string, known: readonly string[]): string {
  return `unknown option${suggestion(field, known) || `; known options: ${known.join(', ')}`}`
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Throws OPTION_INVALID unless `store` is absent or implements Store. */
export function requireStore(field: string, store: unknown): void {
  if (store === undefined || (isObject(store) && typeof store.take === 'function')) return
  const isClient = isObject(store) && typeof store.duplicate === 'function'
  const fix = isClient ? 'wrap the client: redisStore(client)' : 'pass memoryStore() or redisStore(client)'
  throw optionInvalid(field, store, fix)
}
