// Readers for single fields: undefined if the field is absent, a field error if it is invalid.

import { nearest } from '../nearest.ts'
import type { FieldErrors } from './field-errors.ts'

type Fields = Readonly<Record<string, unknown>>

const TEXT_LENGTH_MAX = 255

export function isFields(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** One line of text. Rejects line breaks and control characters, which would end up in headers and logs. */
export function readText(
  fields: Fields,
  name: string,
  errors: FieldErrors,
  lengthMax: number = TEXT_LENGTH_MAX,
): string | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  if (typeof value === 'string' && value !== '' && value.length <= lengthMax && !hasControl(value)) return value
  return errors.add(name, value, `give 1 to ${lengthMax} characters without line breaks or control characters`)
}

export function readNumber(
  fields: Fields,
  name: string,
  { min, max }: { min: number; max: number },
  errors: FieldErrors,
): number | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value
  return errors.add(name, value, `give a whole number from ${min} to ${max}`)
}

export function readOneOf<T extends string>(
  fields: Fields,
  name: string,
  choices: readonly T[],
  errors: FieldErrors,
): T | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  const chosen = choices.find((choice) => choice === value)
  if (chosen !== undefined) return chosen
  const meant = typeof value === 'string' ? nearest(value, choices) : undefined
  return errors.add(name, value, meant ? `did you mean "${meant}"?` : `use one of ${choices.join(', ')}`)
}

/** Date and time in ISO 8601 or database format. `new Date` alone parses "rule 7" as a day in July 2001. */
const TIME = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)(Z|[+-]\d{2}(?::?\d{2})?)?)?$/i

/** In UTC, even if the zone is missing, so that a rule expires at the same time on every machine. */
export function readTime(fields: Fields, name: string, errors: FieldErrors): string | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  const time = value instanceof Date ? value : new Date(typeof value === 'string' ? isoText(value) : Number.NaN)
  if (!Number.isNaN(time.getTime())) return time.toISOString()
  return errors.add(name, value, 'give a time such as "2030-01-31T00:00:00Z"')
}

function isoText(text: string): string {
  const [, date, time = '00:00', zone = 'Z'] = TIME.exec(text) ?? []
  const [hours, minutes = '00'] = zone.match(/[+-]?\d{2}/g) ?? []
  return `${date}T${time}${hours === undefined ? 'Z' : `${hours}:${minutes}`}`
}

export function hasControl(text: string): boolean {
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index)
    if (unit < 32 || unit === 127) return true
  }
  return false
}
