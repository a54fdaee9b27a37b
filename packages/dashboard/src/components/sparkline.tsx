// A small line without axes, for tables. Hidden from screen readers: the numbers beside it say the same.

type Props = { readonly values: readonly number[]; readonly width?: number; readonly height?: number }

export function Sparkline({ values, width = 96, height = 20 }: Props) {
  const max = Math.max(...values, 1e-9)
  const x = (index: number) => (values.length < 2 ? 0 : (index / (values.length - 1)) * width)
  const y = (value: number) => height - 1 - (value / max) * (height - 2)
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`)
  return (
    <svg class="sparkline" width={width} height={height} viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
      {points.length > 1 && <polyline points={points.join(' ')} />}
    </svg>
  )
}
