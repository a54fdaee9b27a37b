// A time series chart on uPlot, with shaded periods. The data moves without a new chart, so a live chart stays smooth.
// Screen readers get the summary; the tables of a page have the numbers.

import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { nowMs } from '../clock.ts'
import { localDateTime, tickTime } from '../format.ts'
import { isDark } from '../theme.ts'

/** Reserved below the chart, so that the page does not move when it appears. */
const LEGEND_HEIGHT = 24
/** A shorter range would repeat the labels of its axis. */
const RANGE_MS_MIN = 30_000
/** Range of a chart without data. */
const EMPTY_RANGE_MS = 300_000

/** Names of the colours in tokens.css. */
export type SeriesColour = 'allowed' | 'refused' | 'series-1' | 'series-2' | 'series-3' | 'series-4' | 'series-5'

export type ChartSeries = {
  readonly name: string
  readonly colour: SeriesColour
  /** One per time; null: no value. */
  readonly values: readonly (number | null)[]
  /** Filled down to zero. */
  readonly fill?: boolean
}

/** Period with a different background, such as a degraded one. */
export type Shade = { readonly fromMs: number; readonly toMs: number; readonly label: string }

type Props = {
  /** Says what the chart shows and its most important number. */
  readonly summary: string
  readonly times: readonly number[]
  readonly series: readonly ChartSeries[]
  /** Text of a value, with its unit. */
  readonly format: (value: number) => string
  readonly shades?: readonly Shade[]
  readonly height?: number
  /** Draws values on top of each other, the first at the bottom. */
  readonly stacked?: boolean
  /** Visible range, in milliseconds. Default: that of the data. */
  readonly fromMs?: number
  readonly toMs?: number
  /** Called with the range that the user selected by dragging. */
  readonly onSelect?: (fromMs: number, toMs: number) => void
}

export function Chart(props: Props) {
  const { summary, height = 180, series } = props
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(null)
  const latest = useRef(props)
  latest.current = props
  const shape = JSON.stringify([series.map(({ name, colour, fill }) => [name, colour, fill]), props.stacked, height])

  useEffect(() => {
    const element = box.current
    if (element === null) return undefined
    const created = new uPlot(optionsOf(latest, element.clientWidth, height), dataOf(latest.current), element)
    plot.current = created
    const observer = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      created.destroy()
    }
  }, [shape, isDark.value])

  useEffect(() => {
    plot.current?.setData(dataOf(props), false)
    const [min, max] = rangeOf(props)
    plot.current?.setScale('x', { min, max })
    plot.current?.setLegend({ idxs: [...(plot.current.cursor.idxs ?? [])] }) // the newest values, if none is under it
  })

  return (
    <div class="chart" ref={box} role="img" aria-label={summary} style={{ minHeight: `${height + LEGEND_HEIGHT}px` }} />
  )
}

function rangeOf({ times, fromMs, toMs }: Props): [number, number] {
  const [first, last] = [fromMs ?? times[0] ?? nowMs() - EMPTY_RANGE_MS, toMs ?? times.at(-1) ?? nowMs()]
  return [first / 1000, Math.max(last, first + RANGE_MS_MIN) / 1000]
}

/** For a stacked chart the last series is the total: it is drawn first, behind the others. */
function dataOf({ times, series, stacked }: Props): uPlot.AlignedData {
  const seconds = times.map((ms) => ms / 1000)
  if (stacked !== true) return [seconds, ...series.map(({ values }) => [...values])]
  const sums = times.map(() => 0)
  const layers = series.map(({ values }) =>
    values.map((value, index) => {
      sums[index] = (sums[index] ?? 0) + (value ?? 0)
      return sums[index] ?? 0
    }),
  )
  return [seconds, ...layers.toReversed()]
}

type Latest = { readonly current: Props }

function optionsOf(latest: Latest, width: number, height: number): uPlot.Options {
  const { series, stacked } = latest.current
  const drawn = stacked === true ? series.toReversed() : series
  const axis = { stroke: cssColour('text-muted'), font: '11px system-ui, sans-serif', ticks: { show: false } }
  const grid = { stroke: cssColour('chart-grid'), width: 1 }
  const format = (value: number) => latest.current.format(value)
  return {
    width,
    height,
    padding: [8, 26, 0, 0], // half of a label, for the last tick
    scales: { y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, size: 24, space: 80, values: (_plot, ticks) => timeTicks(ticks) },
      { ...axis, grid, size: 56, space: 28, values: (_plot, ticks) => ticks.map(format) },
    ],
    series: [
      { label: 'Time', value: (_plot, seconds) => (seconds == null ? '' : localDateTime(seconds * 1000)) },
      ...drawn.map(({ name, colour, fill }) => ({
        label: name,
        stroke: cssColour(colour),
        width: 1.5,
        points: { show: false, filter: (plot: uPlot, index: number) => lonePoints(plot.data[index] ?? []) },
        ...((fill === true || stacked === true) && { fill: cssColour(`${colour}-fill`) }),
        value: (plot: uPlot, _value: number | null, index: number, at: number | null) =>
          shownValue(latest.current, plot, index, at),
      })),
    ],
    legend: { live: true },
    cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    hooks: { drawClear: [(plot) => drawShades(plot, latest.current)], setSelect: [(plot) => select(plot, latest)] },
  }
}

/** Values without a neighbour: no line goes through them. */
function lonePoints(values: ArrayLike<number | null | undefined>): number[] {
  const isEmpty = (at: number) => values[at] == null
  return Array.from(values, (_, at) => at).filter((at) => !isEmpty(at) && isEmpty(at - 1) && isEmpty(at + 1))
}

/** Text in the legend: the value under the cursor, else the newest. */
function shownValue(props: Props, plot: uPlot, index: number, at: number | null): string {
  const values = props.stacked === true ? props.series.at(-index)?.values : props.series[index - 1]?.values
  const shown = at ?? values?.findLastIndex((value) => value !== null) ?? -1
  return shown === -1 ? '–' : props.format(ownValue(props, plot, index, shown))
}

/** Value of one series; uPlot holds the sums of a stacked chart. */
function ownValue({ series, stacked }: Props, _plot: uPlot, index: number, at: number): number {
  const own = stacked === true ? series[series.length - index] : series[index - 1]
  return own?.values[at] ?? 0
}

function drawShades(plot: uPlot, { shades = [] }: Props): void {
  const { left, top, width, height } = plot.bbox
  plot.ctx.fillStyle = cssColour('chart-shade')
  for (const { fromMs, toMs } of shades) {
    const from = Math.max(left, plot.valToPos(fromMs / 1000, 'x', true))
    const to = Math.min(left + width, plot.valToPos(toMs / 1000, 'x', true))
    if (to > from) plot.ctx.fillRect(from, top, to - from, height)
  }
}

function select(plot: uPlot, { current: { onSelect } }: Latest): void {
  const { left, width } = plot.select
  if (width < 4) return
  const [from, to] = [plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')]
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
  onSelect?.(from * 1000, to * 1000)
}

/** Seconds for short ranges, dates for long ones. */
function timeTicks(ticks: readonly number[]): string[] {
  const step = (ticks[1] ?? 0) - (ticks[0] ?? 0)
  return ticks.map((seconds) => tickTime(seconds * 1000, step))
}

function cssColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
}
