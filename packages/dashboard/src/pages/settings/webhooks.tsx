// Webhooks of the node that serves this page: hosts and deliveries. The service does not show URLs and secrets.

import { Failure } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { useApi } from '../../resource.ts'
import { answer } from '../../session.ts'

const REFRESH_MS = 15_000

type Webhook = {
  readonly host: string
  readonly delivered: number
  readonly dropped: number
  readonly pending: number
  readonly last_delivered_at: string | null
  readonly last_error: { readonly at: string; readonly reason: string } | null
}

export function Webhooks() {
  const { data, error } = useApi<{ readonly webhooks: readonly Webhook[] }>('/webhooks', {}, { refreshMs: REFRESH_MS })
  const numbered = data?.webhooks.map((webhook, index) => ({ ...webhook, index }))
  return (
    <Panel title="Webhooks" note={`of ${answer.value?.node}, set by --webhooks`}>
      <Failure error={error} />
      <Table
        caption="Webhooks"
        columns={[
          { title: 'Host', cell: ({ host }) => <span class="mono">{host}</span> },
          { title: 'State', cell: (webhook) => <State {...webhook} /> },
          { title: 'Delivered', align: 'right', wide: true, cell: ({ delivered }) => <Num value={delivered} /> },
          { title: 'Pending', align: 'right', cell: ({ pending }) => <Num value={pending} /> },
          { title: 'Dropped', align: 'right', cell: ({ dropped }) => <Num value={dropped} /> },
        ]}
        rows={numbered}
        rowKey={({ index }) => String(index)}
        empty="None on this node. A webhook reports rule changes, degraded nodes, spikes of refusals and incidents."
        loadingRows={1}
      />
    </Panel>
  )
}

function State({ last_delivered_at: at, last_error: failure }: Webhook) {
  if (failure !== null) {
    return (
      <>
        <Status health="bad">failing</Status>{' '}
        <span class="muted">
          {failure.reason}, <Time at={failure.at} as="ago" />
        </span>
      </>
    )
  }
  if (at === null) return <Status health="off">nothing sent yet</Status>
  return (
    <>
      <Status health="good">delivered</Status>{' '}
      <span class="muted">
        <Time at={at} as="ago" />
      </span>
    </>
  )
}
