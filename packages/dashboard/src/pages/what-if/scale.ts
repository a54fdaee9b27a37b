// Scale of the drag chart. Windows far above the limit must not press it to the bottom, where a pixel is many units:
// their bars are cut off.

import type { Profile } from '../../replay/protocol.ts'

/** Multiple of the limit that is always visible. */
const LIMITS_VISIBLE = 4
const ROOM = 1.5

export type Scale = {
  /** Top of the chart. */
  readonly max: number
  /** The most that the slider and the keyboard reach. */
  readonly reach: number
}

/** `limit`: the active limit. Half of the bars that are not 0 fit, however far above the limit they are. */
export function scaleOf(profile: Profile | undefined, limit: number): Scale {
  const units = (profile?.points ?? []).flatMap((point) => (point.units > 0 ? [point.units] : []))
  units.sort((one, other) => one - other)
  const peak = units.at(-1) ?? 0
  const cap = Math.max(LIMITS_VISIBLE * limit, units[Math.floor(units.length / 2)] ?? 0)
  const reach = rounded(Math.max(4, ROOM * Math.max(peak, limit)))
  return { max: peak > cap ? rounded(cap) : reach, reach }
}

/** The next round number. */
function rounded(value: number): number {
  const step = Math.max(1, 10 ** Math.floor(Math.log10(value)) / 5)
  return Math.ceil(value / step) * step
}
