// Numbers, durations and times as text, with units. Numbers are short but keep three significant digits.

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const COMPACT = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 })
const TWO_DECIMALS = new Intl.NumberFormat('en', { maximumFractionDigits: 2 })
const THREE_DIGITS = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 })

export const DASH = '–'

/** 950 → 950, 12345 → 12.3K */
export function shortCount(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return DASH
  if (Math.abs(value) >= 10_000) return COMPACT.format(value)
  return Number.isInteger(value) ? WHOLE.format(value) : THREE_DIGITS.format(value)
}

/** All digits, grouped: 12,345 */
export function fullCount(value: number | null | undefined): string {
  return value == null ? DASH : value.toLocaleString('en')
}

/** Sentence of the service with grouped digits and readable times: `5000 per 3600 s` → `5,000 per 60 min` */
export function grouped(sentence: string): string {
  return sentence
    .replace(/(?<![\w.-])(\d+) s(?!\w)/g, (_, seconds: string) => span(Number(seconds)))
    .replace(/(?<![\w./-])\d{4,}(?![\w/-]|\.\w)/g, (digits) => fullCount(Number(digits)))
}

/** Share from 0 to 1 as a percentage: 0.0421 → 4.21 % */
export function percent(share: number | null | undefined): string {
  if (share == null || !Number.isFinite(share)) return DASH
  const value = share * 100
  if (value > 0 && value < 0.01) return '< 0.01 %'
  return `${(value < 10 ? TWO_DECIMALS : THREE_DIGITS).format(value)} %`
}

export function rate(perSecond: number | null | undefined): string {
  return perSecond == null || !Number.isFinite(perSecond) ? DASH : `${shortCount(perSecond)}/s`
}

/** Microseconds with the unit that fits: 850 µs, 1.2 ms, 3 s */
export function duration(us: number | null | undefined): string {
  if (us == null || !Number.isFinite(us)) return DASH
  if (us < 1000) return `${THREE_DIGITS.format(us)} µs`
  if (us < 1_000_000) return `${THREE_DIGITS.format(us / 1000)} ms`
  return span(us / 1_000_000)
}

/** Seconds with the unit that fits: 42 s, 5 min, 3 h, 2 d */
export function span(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return DASH
  if (seconds < 90) return `${THREE_DIGITS.format(seconds)} s`
  if (seconds < 5400) return `${THREE_DIGITS.format(seconds / 60)} min`
  if (seconds < 129_600) return `${THREE_DIGITS.format(seconds / 3600)} h`
  return `${THREE_DIGITS.format(seconds / 86_400)} d`
}

/** The same without fractions: 2 min */
export function wholeSpan(seconds: number): string {
  const unit = seconds < 90 ? 1 : seconds < 5400 ? 60 : seconds < 129_600 ? 3600 : 86_400
  return span(Math.round(seconds / unit) * unit)
}

export function bytes(count: number | null | undefined): string {
  if (count == null || !Number.isFinite(count)) return DASH
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(count, 1)) / 3)))
  return `${THREE_DIGITS.format(count / 1000 ** power)} ${units[power]}`
}

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium', hourCycle: 'h23' })
const DATE_AND_CLOCK = new Intl.DateTimeFormat(undefined, {
  dateStyle: 'medium',
  timeStyle: 'medium',
  hourCycle: 'h23',
})

const TICK_SECONDS = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' })
const TICK_MINUTES = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short' })
const TICK_DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' })

/** Label of an axis whose ticks are this many seconds apart. The first tick of a day shows the day. */
export function tickTime(ms: number, stepSeconds: number): string {
  if (stepSeconds >= 86_400 || (stepSeconds >= 3600 && new Date(ms).getHours() === 0)) return TICK_DAY.format(ms)
  return (stepSeconds < 60 ? TICK_SECONDS : TICK_MINUTES).format(ms)
}

/** Local time: the clock alone if it is less than 20 hours from now. */
export function localTime(ms: number, now: number): string {
  return (Math.abs(now - ms) < 20 * 3_600_000 ? CLOCK : DATE_AND_CLOCK).format(ms)
}

export function localDateTime(ms: number): string {
  return DATE_AND_CLOCK.format(ms)
}

export function utcTime(ms: number): string {
  return new Date(ms).toISOString().replace('T', ' ').replace('Z', ' UTC')
}

/** 3 min ago, in 2 h */
export function ago(ms: number, now: number): string {
  const seconds = (now - ms) / 1000
  const text = wholeSpan(Math.abs(seconds))
  return seconds >= 0 ? `${text} ago` : `in ${text}`
}
