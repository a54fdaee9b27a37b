// Parses durations: `30m`, `12h`, `90d`; with seconds where seconds make sense.

const SECONDS_PER: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Long durations, in minutes or longer units. Returns undefined if the text is not one. */
export function durationSeconds(text: string): number | undefined {
  return secondsIn(/^(\d{1,6})([mhd])$/.exec(text))
}

/** Durations from one second. Returns undefined if the text is not one. */
export function durationMs(text: string): number | undefined {
  const seconds = secondsIn(/^(\d{1,6})([smhd])$/.exec(text)) ?? 0
  return seconds > 0 ? seconds * 1000 : undefined
}

/** `90 s` as `90s`, `600 s` as `10m`: the largest unit that gives a whole number. */
export function durationText(ms: number): string {
  const seconds = Math.round(ms / 1000)
  const unit = (['d', 'h', 'm'] as const).find((name) => seconds > 0 && seconds % (SECONDS_PER[name] ?? 1) === 0) ?? 's'
  return `${seconds / (SECONDS_PER[unit] ?? 1)}${unit}`
}

function secondsIn(found: RegExpExecArray | null): number | undefined {
  const [, count, unit = ''] = found ?? []
  return count === undefined ? undefined : Number(count) * (SECONDS_PER[unit] ?? 0)
}
