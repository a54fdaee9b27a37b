// Requests of the busiest client per window, with the limit as a line that can be dragged or moved with arrow keys.

import { useRef, useState } from 'preact/hooks'
import { nowMs } from '../../clock.ts'
import { fullCount, localTime, shortCount } from '../../format.ts'
import type { Profile } from '../../replay/protocol.ts'

const WIDTH = 800
const HEIGHT = 200
const TOP = 8
const BASE = HEIGHT - 4

/** Units by which a key moves the limit. */
const KEY_UNITS: Readonly<Record<string, number>> = {
  ...{ ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 10, PageDown: -10 },
}

type Props = {
  readonly profile: Profile | undefined
  /** Limit per window. */
  readonly limit: number
  /** The limit that is active now. */
  readonly active: number
  /** Top of the chart. */
  readonly max: number
  /** The most that the keyboard reaches. */
  readonly reach: number
  readonly windowText: string
  readonly onLimit: (limit: number) => void
  readonly onCommit: (limit: number) => void
}

export function DragChart({ profile, limit, active, max, reach, windowText, onLimit, onCommit }: Props) {
  const box = useRef<HTMLDivElement>(null)
  const [isDragging, setDragging] = useState(false)
  const points = profile?.points ?? []
  const unitsAt = (clientY: number) => {
    const area = box.current?.getBoundingClientRect()
    if (area === undefined) return limit
    const share = (BASE - ((clientY - area.top) / area.height) * HEIGHT) / (BASE - TOP)
    return Math.max(1, Math.min(max, Math.round(share * max)))
  }
  return (
    <figure class="drag-chart">
      <div
        ref={box}
        class="drag-area"
        role="slider"
        tabIndex={0}
        aria-label="Limit, over the requests of the busiest client per window"
        aria-orientation="vertical"
        aria-valuemin={1}
        aria-valuemax={reach}
        aria-valuenow={limit}
        aria-valuetext={`${limit} per ${windowText}`}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId)
          setDragging(true)
          onLimit(unitsAt(event.clientY))
        }}
        onPointerMove={(event) => isDragging && onLimit(unitsAt(event.clientY))}
        onPointerUp={(event) => {
          setDragging(false)
          onCommit(unitsAt(event.clientY))
        }}
        onKeyDown={(event) => {
          const moved = KEY_UNITS[event.key]
          if (moved === undefined) return
          event.preventDefault()
          onCommit(Math.max(1, Math.min(reach, limit + moved)))
        }}
      >
        <Drawing points={points} limit={limit} active={active} max={max} />
        <span class="drag-max">{shortCount(max)}</span>
        <span
          class="drag-label"
          style={{ top: `${((BASE - Math.min(1, limit / max) * (BASE - TOP)) / HEIGHT) * 100}%` }}
        >
          {shortCount(limit)}
        </span>
      </div>
      <Times points={points} />
      <figcaption class="muted">
        Requests of the busiest client per {windowText}; red: above the limit. Drag the line. Dashed: the active limit
        of {fullCount(active)}. {cutText(points, max)}
      </figcaption>
    </figure>
  )
}

/** Times of the first and the last bar, below them. */
function Times({ points }: { readonly points: Profile['points'] }) {
  return (
    <p class="drag-times" aria-hidden="true">
      <span>{timeOf(points[0])}</span>
      <span>{points.length > 1 && timeOf(points.at(-1))}</span>
    </p>
  )
}

/** Says what does not fit the scale. */
function cutText(points: Profile['points'], max: number): string {
  const cut = points.map(({ units }) => units).filter((units) => units > max)
  if (cut.length === 0) return ''
  const bars = cut.length === 1 ? 'a bar' : `${fullCount(cut.length)} bars`
  return `Cut off: ${bars} of up to ${fullCount(Math.max(...cut))}.`
}

function timeOf(point: { readonly atMs: number } | undefined): string {
  return point === undefined ? '' : localTime(point.atMs, nowMs())
}

type DrawingProps = Pick<Props, 'limit' | 'active' | 'max'> & { readonly points: Profile['points'] }

function Drawing({ points, limit, active, max }: DrawingProps) {
  const y = (units: number) => BASE - (Math.min(units, max) / max) * (BASE - TOP)
  const width = WIDTH / Math.max(1, points.length)
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      {points.map(({ atMs, units }, index) => (
        <g key={atMs}>
          <rect class="drag-within" x={index * width} y={y(units)} width={width * 0.85} height={BASE - y(units)} />
          {units > limit && (
            <rect class="drag-above" x={index * width} y={y(units)} width={width * 0.85} height={y(limit) - y(units)} />
          )}
          {units > max && <rect class="drag-cut" x={index * width} y={TOP} width={width * 0.85} height={3} />}
        </g>
      ))}
      <line class="drag-active" x1={0} x2={WIDTH} y1={y(active)} y2={y(active)} />
      <line class="drag-line" x1={0} x2={WIDTH} y1={y(limit)} y2={y(limit)} />
      <rect class="drag-grip" x={0} y={y(limit) - 12} width={WIDTH} height={24} />
    </svg>
  )
}
