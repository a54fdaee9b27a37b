// A value of somebody else's, made fit to be shown: short, and whatever it is, showing it never fails.

const SHOWN_LENGTH_MAX = 80

/** Scalars stay what they are, long texts are cut, anything else becomes the beginning of its JSON. */
export function shown(value: unknown): unknown {
  if (typeof value === 'string') return cut(value)
  return typeof value === 'object' && value !== null ? cut(jsonOf(value)) : value
}

function cut(text: string): string {
  return text.length > SHOWN_LENGTH_MAX ? `${text.slice(0, SHOWN_LENGTH_MAX - 1)}…` : text
}

/** JSON.stringify gives up on values that are nested some thousand levels deep. */
function jsonOf(value: object): string {
  try {
    return JSON.stringify(value)
  } catch {
    return Array.isArray(value) ? '[…]' : '{…}'
  }
}
