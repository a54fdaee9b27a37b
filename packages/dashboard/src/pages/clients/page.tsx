// Clients: search by user, key, address or tenant, and everything about one of them.

import { useState } from 'preact/hooks'
import { useLocation, useRoute } from 'preact-iso'
import { type ClientKind, clientFrom, clientPath, clientQuery, isClientKind, KINDS } from '../../clients.ts'
import { EmptyState } from '../../components/empty-state.tsx'
import { Failure } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { RangePicker } from '../../components/range-picker.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { usePageUrl, useQuery, useRange } from '../../location.ts'
import { useApi } from '../../resource.ts'
import { ClientPage } from './client.tsx'
import './clients.css'

export function Page() {
  const { params } = useRoute()
  const [query] = useQuery()
  const id = params.id ?? query.id
  const kind = isClientKind(query.kind) ? query.kind : 'user'
  if (id === undefined || id === '') return <ClientList />
  return <ClientPage key={`${kind} ${id}`} client={{ kind, id }} />
}

function ClientList() {
  return (
    <>
      <PageHead title="Clients">
        <RangePicker />
      </PageHead>
      <ClientSearch />
      <div class="columns three">
        <TopClients title="Most refused" by="refused" />
        <TopClients title="Nearest to a limit" by="near_limit" />
        <TopClients title="Busiest" by="allowed" />
      </div>
    </>
  )
}

function ClientSearch() {
  const { route } = useLocation()
  const pageUrl = usePageUrl()
  const [kind, setKind] = useState<ClientKind>('user')
  const [text, setText] = useState('')
  const submit = (event: Event) => {
    event.preventDefault()
    const client = clientFrom(text, kind)
    if (client.id !== '') route(pageUrl(clientPath(client), clientQuery(client)))
  }
  return (
    <form class="client-search" onSubmit={submit} aria-label="Find a client">
      <select
        aria-label="Kind of client"
        value={kind}
        onChange={({ currentTarget }) => setKind(currentTarget.value as ClientKind)}
      >
        {Object.entries(KINDS).map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      <input
        type="search"
        aria-label="Client"
        placeholder="alice, 203.0.113.42 or tenant:acme"
        value={text}
        spellcheck={false}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
      />
      <button type="submit" class="primary">
        Open
      </button>
    </form>
  )
}

type Row = {
  readonly name: string
  readonly kind: ClientKind
  readonly allowed: number
  readonly refused: number
  readonly near_limit: number
}

const SHOWN = 15
const REFRESH_MS = 10_000

type By = 'refused' | 'near_limit' | 'allowed'

function TopClients({ title, by }: { readonly title: string; readonly by: By }) {
  const range = useRange()
  const pageUrl = usePageUrl()
  // Totals are kept per minute: a shorter range would hold none.
  const params = range.name === '1m' ? { from: '2m' } : range.params
  const refreshMs = range.name === undefined ? undefined : REFRESH_MS
  const { data, error, errorCode } = useApi<{ top: readonly Row[] }>(
    '/analytics/top',
    { ...params, of: 'client', by, count: SHOWN },
    { refreshMs },
  )
  const columns: Column<Row>[] = [
    {
      title: 'Client',
      cell: ({ name: id, kind }) => (
        <a class="mono" href={pageUrl(clientPath({ kind, id }), clientQuery({ kind, id }))}>
          {id}
        </a>
      ),
    },
    { title: 'Kind', wide: true, cell: ({ kind }) => KINDS[kind] },
    { title: 'Allowed', align: 'right', wide: by !== 'allowed', cell: ({ allowed }) => <Num value={allowed} /> },
    by !== 'near_limit'
      ? { title: 'Refused', align: 'right', cell: ({ refused }) => <Num value={refused} /> }
      : { title: 'Near limit', align: 'right', cell: ({ near_limit: near }) => <Num value={near} /> },
  ]
  const hasNoTotals = errorCode === 'NO_ANALYTICS'
  return (
    <Panel title={title} note={NOTES[by]}>
      {!hasNoTotals && <Failure error={error} />}
      <Table
        caption={title}
        columns={columns}
        rows={hasNoTotals ? [] : data?.top}
        rowKey={({ name, kind }) => `${kind} ${name}`}
        empty={
          hasNoTotals ? 'This node stores no totals. You can still open a client by its id.' : <NoClients by={by} />
        }
        loadingRows={6}
      />
    </Panel>
  )
}

const NOTES: Readonly<Record<By, string>> = {
  refused: 'refused requests',
  near_limit: 'at most 20 % left',
  allowed: 'allowed requests',
}
const NONE: Readonly<Record<By, readonly [title: string, event: string]>> = {
  refused: ['No client was refused', 'their first refusal'],
  near_limit: ['No client came near a limit', 'using 80 % of a limit'],
  allowed: ['No client sent a request', 'their first request'],
}

function NoClients({ by }: { readonly by: By }) {
  const [title, event] = NONE[by]
  return (
    <EmptyState title={title}>
      A client is the user of a request, else its API key, else its address. Clients appear here within a minute of{' '}
      {event}; any other client opens by its id.
    </EmptyState>
  )
}
