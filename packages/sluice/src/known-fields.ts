// Refuses options that do not exist, with the name that was probably meant: a mistyped option would be ignored.

import { optionInvalid, optionsInvalid } from './errors.ts'
import { suggestion } from './nearest.ts'

/** One entry per field of an options type: an option that is added to the type does not compile until it is listed. */
export type KnownFields<Options> = Readonly<Record<keyof Required<Options>, true>>

/** Throws OPTION_INVALID unless `options` is an object whose fields are all known. `form` is what to pass instead. */
export function requireKnown<Options>(options: unknown, fields: KnownFields<Options>, form: string): void {
  if (!isObject(options)) throw optionInvalid('options', options, `pass ${form}`)
  const known = Object.keys(fields)
  const unknown = Object.keys(options).filter((field) => options[field] !== undefined && !known.includes(field))
  const faults = unknown.map((field) => ({ field, value: options[field], fix: unknownOption(field, known) }))
  if (faults.length > 0) throw optionsInvalid(faults)
}

/** The fix for an option that does not exist. */
export function unknownOption(field: string, known: readonly string[]): string {
  return `is not an option here${suggestion(field, known) || `; those are ${known.join(', ')}`}`
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Throws OPTION_INVALID unless `store` is one of ours, or absent. */
export function requireStore(field: string, store: unknown): void {
  if (store === undefined || (isObject(store) && typeof store.take === 'function')) return
  const isClient = isObject(store) && typeof store.duplicate === 'function'
  const fix = isClient ? 'wrap the client: redisStore(client)' : 'pass memoryStore() or redisStore(client)'
  throw optionInvalid(field, store, fix)
}
