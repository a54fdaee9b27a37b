// Parses times of queries: RFC 3339, or a date.

export const TIME_FIX = 'give a time such as 2030-01-31T12:00:00Z'

/** Undefined if the text is not a time. Clamps to 1970: nothing is older, and databases disagree on years before 1. */
export function timeOf(text: string): Date | undefined {
  const ms = Date.parse(text)
  return Number.isNaN(ms) || !/^\d{4}-\d\d-\d\d/.test(text) ? undefined : new Date(Math.max(0, ms))
}
