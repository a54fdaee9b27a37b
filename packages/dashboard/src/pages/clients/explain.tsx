// Which rules apply to a request of this client, and why the others do not.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { type Client, keyOf } from '../../clients.ts'
import { Failure } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { Tag } from '../../components/status.tsx'
import { Table } from '../../components/table.tsx'
import { exceptionText } from '../../exceptions/applied.ts'
import { fullCount, grouped } from '../../format.ts'
import { useQuery } from '../../location.ts'
import { useResource } from '../../resource.ts'
import { doubtOf, type ExplainedRule, type Explanation, explain } from './explanation.ts'
import { type Facts, factsOf, requestText } from './facts.ts'

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS']
const REFRESH_MS = 5000
/** Rules that do not apply, nearest match first. */
const OTHERS_SHOWN = 4

type Props = { readonly client: Client; readonly requests: readonly Facts[] | undefined }

export function Explain({ client, requests }: Props) {
  const [query, setQuery] = useQuery()
  // The request that was the newest first, while it is one of them: a busy client has others several times a second.
  const first = useRef<Facts>()
  const isSame = (one: Facts) => first.current !== undefined && requestText(one) === requestText(first.current)
  if (requests?.some(isSame) !== true) first.current = requests?.[0]
  const endpoint = query.path ?? first.current?.endpoint ?? '/'
  const method = query.method ?? first.current?.method ?? 'GET'
  const newest = useRef<Facts>({})
  const same = requests?.find((one) => one.endpoint === endpoint && one.method === method) ?? requests?.[0]
  newest.current = { ...same, ...factsOf(client), endpoint, method }
  const load = useCallback(
    (signal: AbortSignal) => explain(client, newest.current, signal),
    [keyOf(client), endpoint, method],
  )
  const { data, error } = useResource(load, { enabled: requests !== undefined, refreshMs: REFRESH_MS })
  const rules = data?.rules
  const others = rules?.filter(({ applies }) => !applies).length ?? 0
  const showsAll = query.rules === 'all' || others <= OTHERS_SHOWN
  const shown = showsAll ? rules : rules?.slice(0, rules.length - others + OTHERS_SHOWN)
  return (
    <Panel title="Which rules apply, and why" class="explain" note={data && `rule set v${data.version}`}>
      <RequestForm method={method} endpoint={endpoint} requests={requests ?? []} />
      <Failure error={error} />
      <p class="explain-answer" aria-live="polite">
        {data === undefined && error === undefined ? (
          <span class="skeleton" />
        ) : (
          <Answer explanation={error === undefined ? data : undefined} />
        )}
      </p>
      <Table
        caption="Rules"
        columns={[
          { title: 'Rule', cell: ({ rule_id: rule }: ExplainedRule) => <span class="mono explain-rule">{rule}</span> },
          {
            title: 'Applies',
            cell: ({ applies }) => <Tag tone={applies ? 'good' : 'plain'}>{applies ? 'applies' : 'no'}</Tag>,
          },
          {
            title: 'Why',
            cell: ({ applies, detail }) => (applies ? grouped(detail.replace(/^it applies: /, '')) : detail),
          },
        ]}
        rows={error === undefined ? shown : (shown ?? [])}
        rowKey={({ rule_id: rule }) => rule}
        empty={error === undefined ? 'There are no rules yet.' : 'Unknown.'}
        loadingRows={3}
      />
      {!showsAll && (
        <button type="button" class="link explain-more" onClick={() => setQuery({ rules: 'all' })}>
          Show {others - OTHERS_SHOWN} more rules that do not apply
        </button>
      )}
    </Panel>
  )
}

/** `explanation` undefined: the service gave none. */
function Answer({ explanation }: { readonly explanation: Explanation | undefined }) {
  const doubt = explanation && doubtOf(explanation)
  if (explanation === undefined || doubt !== undefined) {
    return (
      <>
        <Tag>unknown</Tag> {doubt}
      </>
    )
  }
  const { answer, exceptions } = explanation
  const { allowed, remaining, limit } = answer
  return (
    <>
      <Tag tone={allowed ? 'good' : 'bad'}>{allowed ? 'would be allowed' : 'would be refused'}</Tag>{' '}
      {limit !== null && `${fullCount(remaining)} of ${fullCount(limit)} left. `}
      {exceptions.map((exception) => (
        <Tag key={JSON.stringify(exception)} tone="warning">
          {exceptionText(exception)}
        </Tag>
      ))}
    </>
  )
}

type FormProps = { readonly method: string; readonly endpoint: string; readonly requests: readonly Facts[] }

function RequestForm({ method, endpoint, requests }: FormProps) {
  const [, setQuery] = useQuery()
  const [text, setText] = useState(endpoint)
  useEffect(() => setText(endpoint), [endpoint])
  const submit = (event: Event) => {
    event.preventDefault()
    setQuery({ path: text, method })
  }
  return (
    <form class="client-search" onSubmit={submit} aria-label="Request to explain">
      <select
        aria-label="Method"
        value={method}
        onChange={({ currentTarget }) => setQuery({ path: text, method: currentTarget.value })}
      >
        {[...new Set([method, ...METHODS])].map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
      <input
        aria-label="Path"
        list="client-paths"
        value={text}
        spellcheck={false}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
      />
      <datalist id="client-paths">
        {requests.map(({ endpoint: path }) => (
          <option key={path} value={path} />
        ))}
      </datalist>
      <button type="submit">Explain</button>
    </form>
  )
}
