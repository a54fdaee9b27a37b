// Chooses the time range of the page, which is part of its URL.

import { RANGES, useQuery, useRange } from '../location.ts'

export function RangePicker() {
  const [, setQuery] = useQuery()
  const { name, params } = useRange()
  return (
    <select
      class="range"
      aria-label="Time range"
      value={name ?? 'fixed'}
      onChange={({ currentTarget }) => setQuery({ range: currentTarget.value, from: undefined, to: undefined })}
    >
      {name === undefined && (
        <option value="fixed">
          {params.from.slice(0, 16).replace('T', ' ')} to {params.to?.slice(0, 16).replace('T', ' ')} UTC
        </option>
      )}
      {Object.entries(RANGES).map(([value, { label }]) => (
        <option key={value} value={value}>
          Last {label}
        </option>
      ))}
    </select>
  )
}
