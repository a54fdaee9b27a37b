// Shortens untrusted values for display. Never throws, and reads no more of a value than it shows.

import { jsonStart } from 'sluice'

const SHOWN_LENGTH_MAX = 80

/** Keeps scalars, truncates long texts, and shows anything else as truncated JSON. */
export function shown(value: unknown): unknown {
  if (typeof value === 'string') return truncated(value)
  return typeof value === 'object' && value !== null ? truncated(jsonStart(value, SHOWN_LENGTH_MAX)) : value
}

function truncated(text: string): string {
  return text.length > SHOWN_LENGTH_MAX ? `${text.slice(0, SHOWN_LENGTH_MAX - 1)}…` : text
}
