// Parses the times in Retry-After and reset headers into milliseconds from now: seconds from now, seconds or
// milliseconds since the epoch, durations (`6m0s`), and dates of HTTP and RFC 3339. Undefined for anything else.

/** Smaller numbers are seconds from now; larger ones are epoch times, September 2001 at the earliest. */
const EPOCH_SECONDS_MIN = 1_000_000_000
const EPOCH_MS_MIN = EPOCH_SECONDS_MIN * 1000

/** A number that is further in the past than this as an epoch time is a wait in seconds. */
const PAST_MS_MAX = 366 * 86_400_000

const NUMBER = /^\d{1,15}(?:\.\d{1,9})?$/
const DURATION = /^(?:\d{1,9}(?:\.\d{1,9})?(?:ns|us|ms|s|m|h|d))+$/
const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}
const RFC_3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/
/** The current HTTP date format, and the two obsolete ones that recipients must accept; asctime implies GMT. */
const HTTP_DATE = /^(?:[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4}|[A-Z][a-z]{5,8}, \d\d-[A-Z][a-z]{2}-\d\d) [\d:]{8} GMT$/
const ASCTIME = /^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}$/

/** `nowMs` is the clock of the server that sent the text. */
export function untilMs(text: string, nowMs: number): number | undefined {
  if (NUMBER.test(text)) {
    const number = Number(text)
    if (number < EPOCH_SECONDS_MIN) return number * 1000
    const leftMs = (number < EPOCH_MS_MIN ? number * 1000 : number) - nowMs
    return leftMs < -PAST_MS_MAX ? number * 1000 : Math.max(0, leftMs)
  }
  if (DURATION.test(text)) return durationMs(text)
  const dateMs = parseDateMs(text)
  return dateMs === undefined ? undefined : Math.max(0, dateMs - nowMs)
}

export function parseDateMs(text: string): number | undefined {
  const zoned = ASCTIME.test(text) ? `${text} GMT` : RFC_3339.test(text) || HTTP_DATE.test(text) ? text : ''
  const dateMs = Date.parse(zoned)
  return Number.isNaN(dateMs) ? undefined : dateMs
}

function durationMs(text: string): number {
  let sum = 0
  for (const [, count, unit = ''] of text.matchAll(/([\d.]+)([a-z]+)/g)) sum += Number(count) * (UNIT_MS[unit] ?? 0)
  return sum
}
