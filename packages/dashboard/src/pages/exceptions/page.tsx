// Exceptions: overrides, bypass tokens and abuse signals. One kind at a time, chosen in the URL.

import { PageHead } from '../../components/panel.tsx'
import { useQuery } from '../../location.ts'
import { BypassTokens } from './bypass-tokens.tsx'
import { Overrides } from './overrides.tsx'
import { Signals } from './signals.tsx'
import './exceptions.css'

const KINDS = { overrides: 'Overrides', bypass: 'Bypass tokens', signals: 'Signals' } as const

export function Page() {
  const [query, setQuery] = useQuery()
  const { kind = 'overrides' } = query
  return (
    <>
      <PageHead title="Exceptions" />
      <nav class="kinds" aria-label="Kinds of exceptions">
        {Object.entries(KINDS).map(([name, label]) => (
          <button
            key={name}
            type="button"
            aria-current={name === kind ? 'true' : undefined}
            onClick={() => setQuery({ kind: name === 'overrides' ? undefined : name, q: undefined })}
          >
            {label}
          </button>
        ))}
      </nav>
      {kind === 'bypass' ? <BypassTokens /> : kind === 'signals' ? <Signals /> : <Overrides />}
    </>
  )
}
