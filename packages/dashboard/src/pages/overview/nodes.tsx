// Health of every node, and of what the nodes depend on.

import type { ComponentChildren } from 'preact'
import { Num } from '../../components/number.tsx'
import { Panel } from '../../components/panel.tsx'
import { type Health, Status } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { type Fleet, type FleetNode, type NodeStatus, nodeName } from '../../fleet.ts'
import { shortCount } from '../../format.ts'

const HEALTH: Readonly<Record<NodeStatus, Health>> = {
  ready: 'good',
  degraded: 'warning',
  draining: 'off',
  silent: 'bad',
}

const columnsOf = (fleet: Fleet, isStale: boolean): readonly Column<FleetNode>[] => [
  {
    title: 'Node',
    cell: ({ node, address }) => (
      <>
        {nodeName(fleet, { node, address })} <span class="muted mono">{address.replace(/^https?:\/\//, '')}</span>
      </>
    ),
  },
  {
    title: 'State',
    cell: ({ status, reasons }) =>
      isStale ? (
        <Unknown />
      ) : (
        <span title={reasons.join('\n')}>
          <Status health={HEALTH[status]}>{status}</Status>
        </span>
      ),
  },
  { title: 'Rule set', align: 'right', cell: ({ rules_version }) => `v${rules_version}` },
  { title: 'Region', wide: true, cell: ({ region }) => region ?? <span class="muted">none</span> },
  {
    title: 'Requests',
    align: 'right',
    cell: (node) => <Num value={isStale ? null : node.checks_per_second} as="rate" />,
  },
  {
    title: 'Refused',
    align: 'right',
    wide: true,
    cell: (node) => <Num value={isStale ? null : node.refused_per_second} as="rate" />,
  },
  { title: 'Version', wide: true, cell: ({ version }) => version },
  { title: 'Started', wide: true, cell: ({ started_at }) => <Time at={started_at} as="ago" /> },
]

const NO_FLEET: Fleet = { at: '', nodes: [], alerts: [], figures: [], incomplete: null }

/** `isStale`: the service does not answer. */
type Props = { readonly fleet: Fleet | undefined; readonly isStale: boolean }

function Unknown() {
  return <Status health="off">unknown</Status>
}

export function Nodes({ fleet, isStale }: Props) {
  return (
    <Panel title="Nodes" note="rates of the last minute">
      <Table
        caption="Nodes"
        columns={columnsOf(fleet ?? NO_FLEET, isStale)}
        rows={fleet?.nodes}
        rowKey={({ node, address }) => `${node} ${address}`}
        empty="No node reports."
        loadingRows={1}
      />
    </Panel>
  )
}

/** Redis, database, sinks and regions, each as the worst state that a node reports. */
export function Parts({ fleet, isStale }: Props) {
  const nodes = fleet?.nodes.filter(({ status }) => status !== 'silent') ?? []
  return (
    <Panel title="Depends on">
      <dl class="parts">
        <Part name="Counters">{isStale ? <Unknown /> : fleet && <Store nodes={nodes} />}</Part>
        <Part name="Database">{isStale ? <Unknown /> : fleet && <Database fleet={fleet} nodes={nodes} />}</Part>
        <Part name="Event sinks">{isStale ? <Unknown /> : fleet && <Sinks nodes={nodes} />}</Part>
        <Part name="Regions">{isStale ? <Unknown /> : fleet && <Regions nodes={nodes} />}</Part>
      </dl>
    </Panel>
  )
}

type NodesProps = { readonly nodes: readonly FleetNode[] }

function Part({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children ?? <span class="skeleton" />}</dd>
    </div>
  )
}

function Store({ nodes }: NodesProps) {
  const down = nodes.filter(({ store_failure: failure }) => failure !== null)
  if (nodes.every(({ store }) => store === 'memory')) return <Status health="good">in memory</Status>
  if (down.length === 0) return <Status health="good">Redis answers</Status>
  return (
    <Status health={down.length === nodes.length ? 'bad' : 'warning'}>
      Redis: {down[0]?.store_failure} on {down.length} of {nodes.length} nodes
    </Status>
  )
}

function Database({ fleet, nodes }: NodesProps & { readonly fleet: Fleet }) {
  const kind = nodes.find(({ database }) => database !== null)?.database
  if (kind === undefined) return <Status health="off">none: rules come from a file or etcd</Status>
  const isDown =
    fleet.incomplete !== null || nodes.some(({ reasons }) => reasons.some((text) => /unreachable/.test(text)))
  const name = kind === 'postgres' ? 'PostgreSQL' : 'embedded'
  return <Status health={isDown ? 'bad' : 'good'}>{isDown ? `${name}: unreachable` : name}</Status>
}

function Sinks({ nodes }: NodesProps) {
  const names = [...new Set(nodes.flatMap(({ sinks }) => sinks.map(({ name }) => name)))]
  if (names.length === 0) return <Status health="off">none</Status>
  return (
    <ul class="inline-list">
      {names.map((name) => {
        const all = nodes.flatMap(({ sinks }) => sinks.filter((sink) => sink.name === name))
        const isUp = all.every(({ is_up }) => is_up)
        const dropped = all.reduce((sum, sink) => sum + sink.dropped, 0)
        return (
          <li key={name}>
            <Status health={isUp ? 'good' : 'bad'}>
              {name}
              {dropped > 0 && <span class="muted"> {shortCount(dropped)} dropped</span>}
            </Status>
          </li>
        )
      })}
    </ul>
  )
}

function Regions({ nodes }: NodesProps) {
  const names = [...new Set(nodes.flatMap(({ region }) => (region === null ? [] : [region])))]
  if (names.length === 0) return <Status health="off">one</Status>
  return (
    <ul class="inline-list">
      {names.map((name) => {
        const isIsolated = nodes.some(({ region, region_isolated: isolated }) => region === name && isolated === true)
        return (
          <li key={name}>
            <Status health={isIsolated ? 'warning' : 'good'}>{isIsolated ? `${name}: isolated` : name}</Status>
          </li>
        )
      })}
    </ul>
  )
}
