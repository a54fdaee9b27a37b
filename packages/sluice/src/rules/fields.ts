// Readers for one field each: undefined when it is absent, a fault when it is wrong.

import { nearest } from '../nearest.ts'
import type { Faults } from './faults.ts'

type Fields = Readonly<Record<string, unknown>>

const TEXT_LENGTH_MAX = 255

export function isFields(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** One line of text. Line breaks and control characters would end up in headers and logs. */
export function readText(
  fields: Fields,
  name: string,
  faults: Faults,
  lengthMax: number = TEXT_LENGTH_MAX,
): string | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  if (typeof value === 'string' && value !== '' && value.length <= lengthMax && !hasControl(value)) return value
  return faults.add(name, value, `give 1 to ${lengthMax} characters without line breaks or control characters`)
}

export function readNumber(
  fields: Fields,
  name: string,
  { min, max }: { min: number; max: number },
  faults: Faults,
): number | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value
  return faults.add(name, value, `give a whole number from ${min} to ${max}`)
}

export function readOneOf<T extends string>(
  fields: Fields,
  name: string,
  choices: readonly T[],
  faults: Faults,
): T | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  const chosen = choices.find((choice) => choice === value)
  if (chosen !== undefined) return chosen
  const meant = typeof value === 'string' ? nearest(value, choices) : undefined
  return faults.add(name, value, meant ? `did you mean "${meant}"?` : `use one of ${choices.join(', ')}`)
}

/** Date and time, as ISO 8601 or a database writes them. `new Date` alone takes "rule 7" for a day in July 2001. */
const TIME = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)(Z|[+-]\d{2}(?::?\d{2})?)?)?$/i

/** Kept as UTC, which is also meant where no zone is given: a rule ends at the same moment on every machine. */
export function readTime(fields: Fields, name: string, faults: Faults): string | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  const time = value instanceof Date ? value : new Date(typeof value === 'string' ? isoText(value) : Number.NaN)
  if (!Number.isNaN(time.getTime())) return time.toISOString()
  return faults.add(name, value, 'give a time such as "2030-01-31T00:00:00Z"')
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
