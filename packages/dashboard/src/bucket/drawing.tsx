// Drawings of a simulation: the bucket with its level and the requests at its gate, the strip of recent requests, and
// the level over time. Hidden from screen readers: the figures beside them say the same.

import type { SimulatedRequest, Simulation } from './simulation.ts'

const WIDTH = 260
const HEIGHT = 220
const BOX = { left: 70, right: 190, top: 14, bottom: 144 } as const
const GATE = { x: 130, y: 178 } as const
/** Time that a request is visible after its decision. */
const VISIBLE_US = 1_200_000
const DOTS_MAX = 40
const SPOUT = `M${GATE.x} ${BOX.bottom} V${BOX.bottom + 14}`
const WALL = `M${BOX.left} ${BOX.top} V${BOX.bottom} H${BOX.right} V${BOX.top} ${SPOUT}`

type BucketProps = {
  readonly free: number
  readonly capacity: number
  readonly recent: readonly SimulatedRequest[]
  readonly nowUs: number
}

/** Requests come to the gate under the bucket: admitted ones go on to the right, refused ones fall. */
export function BucketDrawing({ free, capacity, recent, nowUs }: BucketProps) {
  const share = capacity === 0 ? 0 : Math.min(1, free / capacity)
  const height = (BOX.bottom - BOX.top) * share
  const dots = recent.slice(-DOTS_MAX).filter(({ atUs }) => nowUs - atUs < VISIBLE_US)
  const isEmpty = free < 1
  return (
    <svg class="bucket" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true">
      <rect
        class="bucket-level"
        x={BOX.left + 2}
        y={BOX.bottom - height}
        width={BOX.right - BOX.left - 4}
        height={height}
      />
      {marks(capacity).map((y) => (
        <line key={y} class="bucket-mark" x1={BOX.left} x2={BOX.left + 8} y1={y} y2={y} />
      ))}
      <path class="bucket-wall" d={WALL} />
      <text class="bucket-number" x={GATE.x} y={84}>
        {free.toFixed(1)}
      </text>
      <line class="bucket-lane" x1={16} x2={WIDTH - 16} y1={GATE.y + 10} y2={GATE.y + 10} />
      <circle class={isEmpty ? 'bucket-gate bucket-gate-shut' : 'bucket-gate'} cx={GATE.x} cy={GATE.y} r={6} />
      {dots.map((request) => (
        <Dot key={request.number} request={request} nowUs={nowUs} />
      ))}
    </svg>
  )
}

/** Heights of up to ten units on the wall. */
function marks(capacity: number): number[] {
  const count = Math.min(10, Math.floor(capacity))
  const step = (BOX.bottom - BOX.top) / count
  return Array.from({ length: count }, (_, index) => BOX.top + index * step)
}

function Dot({ request: { allowed, atUs }, nowUs }: { readonly request: SimulatedRequest; readonly nowUs: number }) {
  const age = Math.max(0, (nowUs - atUs) / VISIBLE_US)
  const x = allowed ? GATE.x + age * (WIDTH - 16 - GATE.x) : GATE.x - age * 40
  const y = allowed ? GATE.y : GATE.y + age * age * 46
  return <circle class={allowed ? 'dot-allowed' : 'dot-refused'} cx={x} cy={y} r={4} opacity={1 - age * age} />
}

const STRIP_COUNT = 60

/** The newest requests, one bar each; refused ones are shorter and red. */
export function RecentStrip({ recent }: { readonly recent: readonly SimulatedRequest[] }) {
  const shown = recent.slice(-STRIP_COUNT)
  const empty = STRIP_COUNT - shown.length
  return (
    <svg class="strip" viewBox={`0 0 ${STRIP_COUNT * 5} 24`} preserveAspectRatio="none" aria-hidden="true">
      {shown.map(({ number, allowed }, index) => (
        <rect
          key={number}
          class={allowed ? 'dot-allowed' : 'dot-refused'}
          x={(empty + index) * 5}
          y={allowed ? 0 : 12}
          width={3.5}
          height={allowed ? 24 : 12}
        />
      ))}
    </svg>
  )
}

const LEVELS = 200

/** Share of free units over the last 20 seconds. */
export function LevelLine({ simulation: { levels } }: { readonly simulation: Simulation }) {
  const empty = LEVELS - levels.length
  const points = levels.map((share, index) => `${empty + index},${(39 - share * 38).toFixed(1)}`)
  const area = points.length > 1 ? `${empty},40 ${points.join(' ')} ${LEVELS - 1},40` : ''
  return (
    <svg class="level-line" viewBox={`0 0 ${LEVELS} 40`} preserveAspectRatio="none" aria-hidden="true">
      <polygon points={area} />
      <polyline points={points.join(' ')} />
    </svg>
  )
}
