// Event sinks of all nodes: where decision events go, and whether they arrive.

import { Num } from '../../components/number.tsx'
import { Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { type FleetNode, useFleet } from '../../fleet.ts'

type SinkRow = FleetNode['sinks'][number] & { readonly node: string; readonly address: string }

/** `isStale`: the service does not answer. */
const columnsOf = (isStale: boolean): readonly Column<SinkRow>[] => [
  { title: 'Sink', cell: ({ name }) => <span class="num">{name}</span> },
  {
    title: 'Node',
    cell: ({ node, address }) => (
      <>
        {node} <span class="muted mono wide">{address.replace(/^https?:\/\//, '')}</span>
      </>
    ),
  },
  {
    title: 'State',
    cell: ({ is_up: isUp }) => {
      if (isStale) return <Status health="off">unknown</Status>
      return <Status health={isUp ? 'good' : 'bad'}>{isUp ? 'up' : 'down'}</Status>
    },
  },
  { title: 'Waiting', align: 'right', wide: true, cell: ({ pending }) => <Num value={pending} /> },
  { title: 'Dropped', align: 'right', cell: ({ dropped }) => <Num value={dropped} /> },
]

export function Sinks() {
  const { fleet, silentMs } = useFleet()
  const rows = fleet?.nodes.flatMap(({ node, address, sinks }) => sinks.map((sink) => ({ ...sink, node, address })))
  return (
    <Panel title="Event sinks" note="set by --events-sink">
      <Table
        caption="Event sinks"
        columns={columnsOf(silentMs !== undefined)}
        rows={rows}
        rowKey={({ address, name }) => `${address} ${name}`}
        empty="No node stores events."
        loadingRows={1}
      />
    </Panel>
  )
}
