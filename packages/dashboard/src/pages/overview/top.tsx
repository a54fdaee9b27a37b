// Rules that refuse most, and clients that are refused most.

import type { ComponentChildren } from 'preact'
import { eventsQuery, isClientKind, KINDS } from '../../clients.ts'
import { Failure } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { Panel } from '../../components/panel.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { type QueryPatch, type Range, usePageUrl } from '../../location.ts'
import { useApi } from '../../resource.ts'

const SHOWN = 6
const REFRESH_MS = 10_000
/** Rule of requests that no rule decided; those of them that were refused are banned. */
const NO_RULE = 'none'

type Row = { readonly name: string; readonly kind?: string; readonly allowed: number; readonly refused: number }

export function TopRules({ range }: { readonly range: Range }) {
  return (
    <Top
      title="Top refusing rules"
      of="rule"
      range={range}
      header="Rule"
      linkOf={({ name }) => ({ rule: name, result: 'refused' })}
      empty="No rule refused a request in this time range."
    />
  )
}

export function TopClients({ range }: { readonly range: Range }) {
  return (
    <Top
      title="Top refused clients"
      of="client"
      range={range}
      header="Client"
      linkOf={({ name, kind }) => {
        return { ...eventsQuery({ kind: isClientKind(kind) ? kind : 'user', id: name }), result: 'refused' }
      }}
      empty="No client was refused in this time range."
    />
  )
}

type Props = {
  readonly title: string
  readonly of: 'rule' | 'client'
  readonly range: Range
  readonly header: string
  readonly linkOf: (row: Row) => QueryPatch
  readonly empty: ComponentChildren
}

function Top({ title, of, range, header, linkOf, empty }: Props) {
  const pageUrl = usePageUrl()
  // Totals are kept per minute: a shorter range would hold none.
  const params = range.name === '1m' ? { from: '2m' } : range.params
  const refreshMs = range.name === undefined ? undefined : REFRESH_MS
  const { data, error, errorCode } = useApi<{ top: readonly Row[] }>(
    '/analytics/top',
    { ...params, of, by: 'refused', count: SHOWN },
    { refreshMs },
  )
  const columns: Column<Row>[] = [
    {
      title: header,
      cell: (row) => (
        <a class="mono" href={pageUrl('/live', linkOf(row))}>
          {of === 'rule' && row.name === NO_RULE ? 'ban' : row.name}
        </a>
      ),
    },
    ...(of === 'client'
      ? [{ title: 'Kind', cell: ({ kind }: Row) => (isClientKind(kind) ? KINDS[kind] : kind), wide: true }]
      : []),
    { title: 'Refused', align: 'right', cell: ({ refused }) => <Num value={refused} /> },
    {
      title: 'Share',
      align: 'right',
      cell: ({ allowed, refused }) => <Num value={refused / (allowed + refused)} as="percent" />,
    },
  ]
  const hasNoTotals = errorCode === 'NO_ANALYTICS'
  return (
    <Panel title={title}>
      {!hasNoTotals && <Failure error={error} />}
      <Table
        caption={title}
        columns={columns}
        rows={hasNoTotals ? [] : data?.top}
        rowKey={({ name, kind }) => `${kind} ${name}`}
        empty={hasNoTotals ? 'This node stores no totals.' : empty}
        loadingRows={SHOWN}
      />
    </Panel>
  )
}
