// Units of Envoy's rate limits, by their number on the wire. Windows are aligned to the epoch; a month has 30 days and
// a year 365, as in envoyproxy/ratelimit.

export type UnitName = 'second' | 'minute' | 'hour' | 'day' | 'month' | 'year' | 'week'

export type Unit = { readonly name: UnitName; readonly number: number; readonly seconds: number }

const DAY_S = 86_400

const TABLE: Readonly<Record<UnitName, Unit>> = {
  second: { name: 'second', number: 1, seconds: 1 },
  minute: { name: 'minute', number: 2, seconds: 60 },
  hour: { name: 'hour', number: 3, seconds: 3600 },
  day: { name: 'day', number: 4, seconds: DAY_S },
  month: { name: 'month', number: 5, seconds: 30 * DAY_S },
  year: { name: 'year', number: 6, seconds: 365 * DAY_S },
  week: { name: 'week', number: 7, seconds: 7 * DAY_S },
}

export const UNITS: readonly Unit[] = Object.values(TABLE)
export const UNIT_NAMES: readonly UnitName[] = UNITS.map(({ name }) => name)

/** Undefined for UNKNOWN and for numbers that the protocol does not have. */
export function unitNumbered(number: number): Unit | undefined {
  return UNITS.find((unit) => unit.number === number)
}

/** `Minute` is accepted, as in envoyproxy/ratelimit. */
export function unitNamed(text: string): Unit | undefined {
  const lower = text.toLowerCase()
  return UNITS.find(({ name }) => name === lower)
}

/** Number of the unit of a window; 0 if no unit is that long. */
export function unitNumberOf(windowMs: number): number {
  return UNITS.find(({ seconds }) => seconds * 1000 === windowMs)?.number ?? 0
}
