// Scale of the drag chart. A few windows far above the limit must not press it to the bottom, where a pixel is many
// units: they are cut off.

import type { Profile } from '../../replay/protocol.ts'

/** Multiple of the limit that is always visible, if bars reach it. */
const LIMITS_VISIBLE = 4
/** Share of the bars that are never cut off. */
const BARS_VISIBLE = 0.95

export function scaleMax(profile: Profile | undefined, limit: number): number {
  const units = (profile?.points ?? []).map((point) => point.units).sort((one, other) => one - other)
  const peak = units.at(-1) ?? 0
  const cap = Math.max(LIMITS_VISIBLE * limit, units[Math.ceil(units.length * BARS_VISIBLE) - 1] ?? 0)
  return peak > cap ? rounded(cap) : rounded(Math.max(4, 1.5 * Math.max(peak, limit)))
}

/** The next round number. */
function rounded(value: number): number {
  const step = 10 ** Math.floor(Math.log10(value)) / 2
  return Math.ceil(value / step) * step
}
