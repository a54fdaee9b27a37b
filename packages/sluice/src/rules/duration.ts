// Parses durations into whole milliseconds: `500ms`, `30s`, `1m`, `2h`, `1d`.

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Undefined for anything else, and above the safe integers. */
export function parseDurationMs(text: string): number | undefined {
  const [, count, unit = ''] = /^(\d{1,15})(ms|s|m|h|d)$/.exec(text) ?? []
  const durationMs = Number(count) * (UNIT_MS[unit] ?? Number.NaN)
  return Number.isSafeInteger(durationMs) ? durationMs : undefined
}

/** Fix for an invalid `window`. Plain numbers are ambiguous: some libraries mean seconds, others milliseconds. */
export function windowFix(window: unknown): string {
  const isWhole = Number.isInteger(window) && Number(window) > 0
  if (isWhole) return `give the number a unit: "${window}s" for seconds, "${window}ms" for milliseconds`
  return 'give a duration such as "500ms", "30s", "1m" or "1d", from 1ms to 366d'
}
