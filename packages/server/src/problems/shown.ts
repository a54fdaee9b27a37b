// Shortens untrusted values for display. Never throws.

const SHOWN_LENGTH_MAX = 80

/** Keeps scalars, truncates long texts, and shows anything else as truncated JSON. */
export function shown(value: unknown): unknown {
  if (typeof value === 'string') return truncated(value)
  return typeof value === 'object' && value !== null ? truncated(jsonOf(value)) : value
}

function truncated(text: string): string {
  return text.length > SHOWN_LENGTH_MAX ? `${text.slice(0, SHOWN_LENGTH_MAX - 1)}…` : text
}

/** JSON.stringify throws on values that are nested thousands of levels deep. */
function jsonOf(value: object): string {
  try {
    return JSON.stringify(value)
  } catch {
    return Array.isArray(value) ? '[…]' : '{…}'
  }
}
