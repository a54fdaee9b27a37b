// Times in logs, as microseconds since the epoch; undefined if a text is not a time.

const CLF = /^(\d{2})\/([A-Z][a-z]{2})\/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2})(\d{2})$/
const ISO = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(?:[.,]\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?$/
const FRACTION = /[.,](\d{1,9})/
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']
const US_MAX = Date.UTC(9999, 11, 31) * 1000

/** `31/Jan/2026:10:00:00 +0100` */
export function clfTimeUs(text: string): number | undefined {
  const parts = CLF.exec(text)
  if (parts === null) return undefined
  const [, day, name = '', year, hour, minute, second, sign, hours, minutes] = parts
  const month = MONTHS.indexOf(name)
  const [d, h, m, s] = [day, hour, minute, second].map(Number) as [number, number, number, number]
  if (month < 0 || d < 1 || d > 31 || h > 23 || m > 59 || s > 60) return undefined
  const offset = (Number(hours) * 60 + Number(minutes)) * (sign === '-' ? -60_000 : 60_000)
  return inRange((Date.UTC(Number(year), month, d, h, m, s) - offset) * 1000)
}

/** RFC 3339 with up to nanoseconds, a number of seconds, milliseconds, microseconds or nanoseconds, or CLF. */
export function timeUs(value: unknown): number | undefined {
  if (typeof value === 'number') return numberUs(value)
  if (typeof value !== 'string' || value.length > 40) return undefined
  if (ISO.test(value)) return isoUs(value)
  if (/^\d{9,19}(\.\d{1,9})?$/.test(value)) return numberUs(Number(value))
  return clfTimeUs(value.replace(/^\[|\]$/g, ''))
}

/** A time without a zone is UTC. */
function isoUs(text: string): number | undefined {
  const digits = FRACTION.exec(text)?.[1] ?? ''
  const zone = /(Z|[+-]\d{2}:?\d{2})$/.exec(text)?.[1] ?? 'Z'
  const whole = text.slice(0, text.length - (text.endsWith(zone) ? zone.length : 0)).replace(FRACTION, '')
  const ms = Date.parse(whole.replace(' ', 'T') + (zone.length === 5 ? `${zone.slice(0, 3)}:${zone.slice(3)}` : zone))
  return Number.isNaN(ms) ? undefined : inRange(ms * 1000 + Math.floor(Number(`0.${digits || 0}`) * 1e6))
}

/** The size determines the unit, without ambiguity for times after 1973 and before 5138. */
function numberUs(value: number): number | undefined {
  const unit = value < 1e11 ? 1e6 : value < 1e14 ? 1e3 : value < 1e17 ? 1 : 1e-3
  return inRange(Math.floor(value * unit))
}

function inRange(us: number): number | undefined {
  return us > 0 && us < US_MAX ? us : undefined
}
