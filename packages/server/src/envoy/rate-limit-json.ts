// RateLimitRequest and RateLimitResponse as proto3 JSON, for POST /json. Fields may be camelCase or snake_case, as in
// every proto3 parser; unknown ones are refused.

import { type FieldError, suggestion } from 'sluice'
import { invalidRequest, ProblemError } from '../problems/problem.ts'
import { type Descriptor, hitsOf, type LimitOverride, type RateLimitRequest } from './rate-limit-request.ts'
import { CODE, type CurrentLimit, type RateLimitResponse, type Status, UINT32_MAX } from './rate-limit-response.ts'
import { UNITS, unitNamed } from './units.ts'

const CODE_NAMES = { [CODE.ok]: 'OK', [CODE.overLimit]: 'OVER_LIMIT' } as const

/** Throws a REQUEST_INVALID problem with every mistake. */
export function rateLimitRequestFromJson(body: unknown): RateLimitRequest {
  const errors: FieldError[] = []
  const fields = fieldsOf(body, '', ['domain', 'descriptors', 'hitsAddend'], errors)
  const hits = numberIn(fields, 'hitsAddend', '', UINT32_MAX, errors) ?? 0
  const request = {
    domain: textIn(fields, 'domain', '', errors),
    descriptors: listIn(fields, 'descriptors', '', errors).map((one, index) => {
      return descriptorIn(one, `descriptors[${index}]`, hits, errors)
    }),
    hits,
  }
  if (errors.length > 0) throw new ProblemError(invalidRequest(errors))
  return request
}

export function rateLimitResponseToJson({ code, statuses, headers, metadata }: RateLimitResponse): object {
  return {
    overallCode: CODE_NAMES[code],
    statuses: statuses.map(statusJson),
    ...(headers.length > 0 && { responseHeadersToAdd: headers }),
    ...(metadata && { dynamicMetadata: metadata }),
  }
}

/** proto3 JSON leaves out fields with default values. */
function statusJson({ code, limit, remaining, resetSeconds }: Status): object {
  return {
    code: CODE_NAMES[code],
    ...(limit && { currentLimit: limitJson(limit) }),
    ...(remaining > 0 && { limitRemaining: remaining }),
    ...(resetSeconds !== undefined && { durationUntilReset: `${resetSeconds}s` }),
  }
}

function limitJson({ requestsPerUnit, unit, name }: CurrentLimit): object {
  const unitName = UNITS.find(({ number }) => number === unit)?.name.toUpperCase()
  return {
    ...(requestsPerUnit > 0 && { requestsPerUnit }),
    ...(unitName && { unit: unitName }),
    ...(name !== '' && { name }),
  }
}

function descriptorIn(value: unknown, path: string, hits: number, errors: FieldError[]): Descriptor {
  const fields = fieldsOf(value, path, ['entries', 'limit', 'hitsAddend'], errors)
  const entries = listIn(fields, 'entries', path, errors).map((one, index) => {
    const at = `${path}.entries[${index}]`
    const entry = fieldsOf(one, at, ['key', 'value'], errors)
    return { key: textIn(entry, 'key', at, errors), value: textIn(entry, 'value', at, errors) }
  })
  const own = numberIn(fields, 'hitsAddend', path, Number.MAX_SAFE_INTEGER, errors)
  return { entries, limit: overrideIn(fields.limit, `${path}.limit`, errors), hits: hitsOf(own, hits), ownHits: own }
}

function overrideIn(value: unknown, path: string, errors: FieldError[]): LimitOverride | undefined {
  if (value === undefined || value === null) return undefined
  const fields = fieldsOf(value, path, ['requestsPerUnit', 'unit'], errors)
  const requestsPerUnit = numberIn(fields, 'requestsPerUnit', path, UINT32_MAX, errors) ?? 0
  const { unit } = fields
  const number = typeof unit === 'string' ? unitNamed(unit)?.number : unit
  if (typeof number === 'number') return { requestsPerUnit, unit: number }
  errors.push({ field: `${path}.unit`, value: unit, fix: 'give a unit such as MINUTE' })
  return undefined
}

type Fields = Readonly<Record<string, unknown>>

function fieldsOf(value: unknown, path: string, known: readonly string[], errors: FieldError[]): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    errors.push({ field: path || 'body', value, fix: `give an object of ${known.join(', ')}` })
    return {}
  }
  const fields: Record<string, unknown> = {}
  for (const [given, field] of Object.entries(value)) {
    const name = given.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
    if (known.includes(name)) fields[name] = field
    else errors.push({ field: join(path, given), value: field, fix: `unknown field${suggestion(name, known)}` })
  }
  return fields
}

function textIn(fields: Fields, name: string, path: string, errors: FieldError[]): string {
  const value = fields[name] ?? ''
  if (typeof value === 'string') return value
  errors.push({ field: join(path, name), value, fix: 'give a text' })
  return ''
}

function listIn(fields: Fields, name: string, path: string, errors: FieldError[]): readonly unknown[] {
  const value = fields[name] ?? []
  if (Array.isArray(value)) return value
  errors.push({ field: join(path, name), value, fix: 'give a list' })
  return []
}

/** 64-bit numbers are texts in proto3 JSON. */
function numberIn(fields: Fields, name: string, path: string, max: number, errors: FieldError[]): number | undefined {
  const value = fields[name] ?? undefined
  if (value === undefined) return undefined
  const number = typeof value === 'string' && /^\d{1,20}$/.test(value) ? Number(value) : value
  if (typeof number === 'number' && Number.isInteger(number) && number >= 0) {
    if (number <= max) return number
    if (typeof value === 'string') return max
  }
  errors.push({ field: join(path, name), value, fix: `give a whole number from 0 to ${max}` })
  return undefined
}

function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`
}
