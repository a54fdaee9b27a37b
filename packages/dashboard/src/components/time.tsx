// A moment in the local zone, with UTC on hover.

import { nowMs } from '../clock.ts'
import { ago, localTime, utcTime } from '../format.ts'

type Props = {
  /** RFC 3339, or milliseconds since the epoch. Null: never. */
  readonly at: string | number | null | undefined
  /** `ago`: 3 min ago. Default: the clock, with the date if it is another day. */
  readonly as?: 'clock' | 'ago'
}

export function Time({ at, as = 'clock' }: Props) {
  const ms = typeof at === 'string' ? Date.parse(at) : (at ?? Number.NaN)
  if (!Number.isFinite(ms)) return <span class="muted">never</span>
  return (
    <time dateTime={new Date(ms).toISOString()} title={utcTime(ms)} class="num">
      {as === 'ago' ? ago(ms, nowMs()) : localTime(ms, nowMs())}
    </time>
  )
}
