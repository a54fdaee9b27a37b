// Reads fields of a parsed JSON object, whose content a client may have chosen.

import type { Subject } from '../../subject.ts'

export type JsonObject = Readonly<Record<string, unknown>>

/** The first of these fields that has a value. */
export function fieldOf(object: JsonObject, names: readonly string[]): unknown {
  for (const name of names) {
    const value = Object.hasOwn(object, name) ? object[name] : name.includes('.') ? nested(object, name) : undefined
    if (value !== undefined && value !== null) return value
  }
  return undefined
}

function nested(object: JsonObject, name: string): unknown {
  let value: unknown = object
  for (const part of name.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return undefined
    value = (value as JsonObject)[part]
  }
  return value
}

/** A text or number; `-` and the empty text stand for nothing. */
export function textIn(object: JsonObject, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = fieldOf(object, [name])
    const text = typeof value === 'number' ? String(value) : value
    if (typeof text === 'string' && text !== '' && text !== '-') return text
  }
  return undefined
}

/** Attributes of a request: only texts, numbers and booleans. */
export function attributesIn(value: unknown): Subject['attributes'] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
  const entries = Object.entries(value).filter(([, one]) => ['string', 'number', 'boolean'].includes(typeof one))
  return entries.length === 0 ? undefined : Object.fromEntries(entries)
}

export function withoutUndefined(subject: Subject): Subject {
  return Object.fromEntries(Object.entries(subject).filter(([, value]) => value !== undefined))
}
