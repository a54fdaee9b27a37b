// Filters of the live tail, in the URL.

import { QueryField } from '../../components/field.tsx'
import { useQuery } from '../../location.ts'

const RESULTS = { '': 'All results', refused: 'Refused', allowed: 'Allowed' }
const SOURCES = {
  '': 'Decided anywhere',
  store: 'store',
  lease: 'lease',
  local: 'local',
  policy_open: 'policy_open',
  policy_closed: 'policy_closed',
}
const KINDS = { '': 'User', api_key: 'API key', ip: 'Address' }

export function Filters() {
  const [query, setQuery] = useQuery()
  const isFiltered = ['result', 'rule', 'client', 'endpoint', 'source'].some((name) => query[name] !== undefined)
  return (
    // biome-ignore lint/a11y/useSemanticElements: <search> is not known to all screen readers
    <div class="filters" role="search" aria-label="Filter decisions">
      <Choice name="result" label="Result" options={RESULTS} />
      <QueryField name="rule" label="Rule" />
      <Choice name="kind" label="Kind of client" options={KINDS} />
      <QueryField name="client" label="Client" />
      <QueryField name="endpoint" label="Endpoint pattern" />
      <Choice name="source" label="Decided by" options={SOURCES} />
      {isFiltered && (
        <button
          type="button"
          class="link"
          onClick={() =>
            setQuery({ result: '', rule: '', kind: '', client: '', endpoint: '', source: '', event: undefined })
          }
        >
          Reset
        </button>
      )}
    </div>
  )
}

type ChoiceProps = {
  readonly name: string
  readonly label: string
  readonly options: Readonly<Record<string, string>>
}

function Choice({ name, label, options }: ChoiceProps) {
  const [query, setQuery] = useQuery()
  return (
    <select
      aria-label={label}
      value={query[name] ?? ''}
      onChange={({ currentTarget }) => setQuery({ [name]: currentTarget.value })}
    >
      {Object.entries(options).map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </select>
  )
}
