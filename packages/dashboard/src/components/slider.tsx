// A range input with its value beside the label. Dragging calls `onValue` for every step; the URL or a request follows
// in `onCommit`, when the user lets go.

import { useId } from 'preact/hooks'

type Props = {
  readonly label: string
  readonly value: number
  readonly min: number
  readonly max: number
  readonly step?: number
  /** The value as text, with its unit. */
  readonly text: string
  readonly onValue: (value: number) => void
  readonly onCommit?: (value: number) => void
  readonly disabled?: boolean
}

export function Slider({ label, value, min, max, step = 1, text, onValue, onCommit, disabled }: Props) {
  const id = useId()
  return (
    <div class="slider">
      <label for={id}>{label}</label>
      <output for={id} class="num">
        {text}
      </output>
      <input
        id={id}
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        disabled={disabled}
        aria-valuetext={text}
        onInput={({ currentTarget }) => onValue(currentTarget.valueAsNumber)}
        onChange={({ currentTarget }) => onCommit?.(currentTarget.valueAsNumber)}
      />
    </div>
  )
}
