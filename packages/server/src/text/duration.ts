// Parses long durations: `30m`, `12h`, `90d`.

const SECONDS_PER: Readonly<Record<string, number>> = { m: 60, h: 3600, d: 86_400 }

/** Returns undefined if the text is not a duration. */
export function durationSeconds(text: string): number | undefined {
  const [, count, unit = ''] = /^(\d{1,6})([mhd])$/.exec(text) ?? []
  return count === undefined ? undefined : Number(count) * (SECONDS_PER[unit] ?? 0)
}
