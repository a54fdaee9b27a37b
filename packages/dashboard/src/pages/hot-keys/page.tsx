// Hot keys: the busiest keys of all nodes, and their share of the traffic.

import { EmptyState } from '../../components/empty-state.tsx'
import { Failure } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { usePageUrl } from '../../location.ts'
import { useApi } from '../../resource.ts'

type HotKey = {
  readonly rule_id: string
  readonly name: string
  readonly key_hash: string
  readonly checks_per_second: number
  readonly share: number
}

const REFRESH_MS = 5000

export function Page() {
  const pageUrl = usePageUrl()
  const { data, error, reload } = useApi<{ hot_keys: readonly HotKey[] }>(
    '/rate-limit/hot-keys',
    { limit: 100, nodes: 'all' },
    { refreshMs: REFRESH_MS },
  )
  const columns: Column<HotKey>[] = [
    {
      title: 'Rule',
      cell: ({ rule_id: rule, name }) => (
        <>
          <a class="mono" href={pageUrl('/live', { rule })}>
            {rule}
          </a>
          {name !== 'default' && <span class="muted"> {name}</span>}
        </>
      ),
    },
    { title: 'Key', cell: ({ key_hash: hash }) => <span class="mono">{hash}</span> },
    { title: 'Requests', align: 'right', cell: (key) => <Num value={key.checks_per_second} as="rate" /> },
    { title: 'Share of traffic', align: 'right', cell: ({ share }) => <Num value={share} as="percent" /> },
  ]
  return (
    <>
      <PageHead title="Hot keys" />
      <Panel title="Busiest keys" note="of all nodes, over the last half minute">
        <Failure error={error} retry={reload} />
        <Table
          caption="Busiest keys"
          columns={columns}
          rows={data?.hot_keys}
          rowKey={({ rule_id, name, key_hash }) => `${rule_id} ${name} ${key_hash}`}
          empty={<NoHotKeys />}
        />
      </Panel>
      {data !== undefined && data.hot_keys.length > 0 && (
        <p class="muted">
          Keys are shown as keyed hashes, as in the log; nodes with different --key-secret list a key twice. Rates are
          estimates from one check in 128, and err low. A key that is hot gets larger leases by itself.
        </p>
      )}
    </>
  )
}

function NoHotKeys() {
  const pageUrl = usePageUrl()
  return (
    <EmptyState title="No key is hot" action={<a href={pageUrl('/clients')}>See the busiest clients</a>}>
      A key is listed once it gets at least 1 % of the checks of a node, and about 150 checks a second. One client that
      sends most of the traffic then shows up here, before it is a problem for a single Redis shard.
    </EmptyState>
  )
}
