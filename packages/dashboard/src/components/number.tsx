// A number with its unit; the exact value on hover. Figures are tabular, so that changing digits do not move the text.

import { bytes, duration, fullCount, percent, rate, shortCount } from '../format.ts'

const FORMATS = { count: shortCount, percent, rate, duration, bytes } as const

type Props = {
  readonly value: number | null | undefined
  /** `duration` takes microseconds, `percent` a share from 0 to 1. Default: count. */
  readonly as?: keyof typeof FORMATS
  readonly unit?: string
}

export function Num({ value, as = 'count', unit }: Props) {
  const exact = value == null ? undefined : `${fullCount(value)}${as === 'duration' ? ' µs' : ''}`
  return (
    <span class="num" title={as === 'percent' ? undefined : exact}>
      {FORMATS[as](value)}
      {unit !== undefined && <span class="unit"> {unit}</span>}
    </span>
  )
}
