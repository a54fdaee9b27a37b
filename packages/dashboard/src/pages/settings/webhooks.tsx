// Webhooks of the node that serves this page, from its metrics: URLs and secrets are not shown.

import { useCallback } from 'preact/hooks'
import { Failure } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { Panel } from '../../components/panel.tsx'
import { Table } from '../../components/table.tsx'
import { useResource } from '../../resource.ts'
import { answer } from '../../session.ts'

const REFRESH_MS = 15_000

type Counts = { readonly delivered: number; readonly dropped: number } | undefined

export function Webhooks() {
  const load = useCallback(readCounts, [])
  const { data, error } = useResource<{ readonly counts: Counts }>(load, { refreshMs: REFRESH_MS })
  const rows = data && (data.counts === undefined ? [] : [data.counts])
  return (
    <Panel title="Webhooks" note="set by --webhooks">
      <Failure error={error} />
      <Table
        caption="Webhooks"
        columns={[
          { title: 'Node', cell: () => answer.value?.node },
          { title: 'Delivered', align: 'right', cell: ({ delivered }) => <Num value={delivered} /> },
          { title: 'Dropped', align: 'right', cell: ({ dropped }) => <Num value={dropped} /> },
        ]}
        rows={rows}
        rowKey={() => 'webhooks'}
        empty="None on this node. A webhook reports rule changes, degraded nodes, spikes of refusals and incidents."
        loadingRows={1}
      />
      {data?.counts?.delivered === 0 && data.counts.dropped === 0 && (
        <p class="muted">Nothing was sent since the start: no webhook is configured, or nothing happened.</p>
      )}
    </Panel>
  )
}

async function readCounts(signal: AbortSignal): Promise<{ readonly counts: Counts }> {
  const text = await fetch('/metrics', { signal }).then((response) => response.text())
  const [delivered, dropped] = ['delivered', 'dropped'].map((name) => sumOf(text, `sluice_webhooks_${name}_total`))
  return { counts: delivered === undefined || dropped === undefined ? undefined : { delivered, dropped } }
}

/** Sum of the samples of a metric; undefined if it has none. */
function sumOf(text: string, metric: string): number | undefined {
  const samples = [...text.matchAll(new RegExp(`^${metric}(?:{[^}]*})? (\\S+)`, 'gm'))].map(([, value]) =>
    Number(value),
  )
  return samples.length === 0 ? undefined : samples.reduce((sum, value) => sum + value, 0)
}
