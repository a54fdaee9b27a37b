// Regions: how they share global limits, as the node that serves this page sees it.

import { EmptyState } from '../../components/empty-state.tsx'
import { Failure } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { type Fleet, useFleet } from '../../fleet.ts'
import { duration, percent } from '../../format.ts'
import { useApi } from '../../resource.ts'
import { answer } from '../../session.ts'
import './regions.css'

type Shares = { readonly home_share: number; readonly weights: Readonly<Record<string, number>> }
type SharedLimit = {
  readonly rule_id: string
  readonly name: string
  readonly plan: string | null
  readonly limit: number
  readonly homes: Readonly<Record<string, number>>
  readonly pool: number
  readonly bound: number
}
type Regions = {
  readonly region: string
  readonly shares: Shares
  readonly next_shares: Shares | null
  readonly isolated: boolean
  readonly lag_ms: number
  readonly clock_difference_ms: number
  readonly home_units: number
  readonly borrowed_units: number
  readonly limits: readonly SharedLimit[]
}

const REFRESH_MS = 5000

export function Page() {
  const { fleet } = useFleet()
  const hasRegion = fleet?.nodes.find(({ node }) => node === answer.value?.node)?.region != null
  const { data, error } = useApi<Regions>('/regions', {}, { enabled: hasRegion, refreshMs: REFRESH_MS })
  return (
    <>
      <PageHead title="Regions" />
      <Failure error={hasRegion ? error : undefined} />
      {fleet !== undefined && !hasRegion && <NoRegion />}
      {data !== undefined && <ThisRegion regions={data} fleet={fleet} isKnown={error === undefined} />}
      {data !== undefined && <Limits regions={data} />}
      {data !== undefined && (
        <p class="muted">
          A region spends its home without a round trip to the global Redis. Beyond its home, it leases units from the
          pool. While the global Redis is unreachable, only homes and units already leased are available.
        </p>
      )}
    </>
  )
}

type ThisRegionProps = {
  readonly regions: Regions
  readonly fleet: Fleet | undefined
  /** False: the service does not answer any more. */
  readonly isKnown: boolean
}

function ThisRegion({ regions, fleet, isKnown }: ThisRegionProps) {
  const { region, shares, next_shares: next } = regions
  const nodesOf = (name: string) => fleet?.nodes.filter((node) => node.region === name).length ?? 0
  return (
    <Panel title={`Region ${region}`} note={next === null ? undefined : 'shares are being changed'}>
      <dl class="region-facts">
        <div>
          <dt>Global Redis</dt>
          <dd>
            {!isKnown ? (
              <Status health="off">unknown</Status>
            ) : regions.isolated ? (
              <Status health="warning">isolated: homes and leased units only</Status>
            ) : (
              <Status health="good">answers in {milliseconds(regions.lag_ms)}</Status>
            )}
          </dd>
        </div>
        <div>
          <dt>Clock difference</dt>
          <dd>{milliseconds(Math.abs(regions.clock_difference_ms))}</dd>
        </div>
        <div>
          <dt>Units from its home</dt>
          <dd>
            <Num value={regions.home_units} />
          </dd>
        </div>
        <div>
          <dt>Units from the pool</dt>
          <dd>
            <Num value={regions.borrowed_units} />
          </dd>
        </div>
      </dl>
      <Table
        caption="Weights of regions"
        columns={[
          { title: 'Region', cell: ([name]) => name },
          { title: 'Weight of its home', align: 'right', cell: ([, weight]) => percent(weight) },
          { title: 'Share of each limit', align: 'right', cell: ([, weight]) => percent(weight * shares.home_share) },
          { title: 'Nodes', align: 'right', cell: ([name]) => nodesOf(name) },
        ]}
        rows={Object.entries(shares.weights)}
        rowKey={([name]) => name}
        empty="None."
      />
    </Panel>
  )
}

function Limits({ regions: { limits, shares } }: { readonly regions: Regions }) {
  const columns: Column<SharedLimit>[] = [
    {
      title: 'Limit',
      cell: ({ rule_id: rule, name, plan }) => (
        <>
          <span class="mono">{name === 'default' ? rule : `${rule}/${name}`}</span>{' '}
          <span class="muted">{plan ?? ''}</span>
        </>
      ),
    },
    { title: 'Units', align: 'right', cell: ({ limit }) => <Num value={limit} /> },
    ...Object.keys(shares.weights).map((name) => ({
      title: `Home ${name}`,
      align: 'right' as const,
      wide: true,
      cell: ({ homes }: SharedLimit) => <Num value={homes[name]} />,
    })),
    { title: 'Pool', align: 'right', cell: ({ pool }) => <Num value={pool} /> },
    { title: 'At most', align: 'right', cell: ({ bound }) => <Num value={bound} /> },
  ]
  return (
    <Panel title="Limits that regions share" note="at most: with the measured clock difference">
      <Table
        caption="Limits that regions share"
        columns={columns}
        rows={limits}
        rowKey={({ rule_id, name, plan }) => `${rule_id} ${name} ${plan}`}
        empty="No rule has spread: global. Rules count per region."
      />
    </Panel>
  )
}

function milliseconds(ms: number): string {
  return ms < 1 ? 'less than 1 ms' : duration(ms * 1000)
}

function NoRegion() {
  return (
    <Panel title="One region">
      <EmptyState title="This node has no region">
        With <code>--region eu --global-redis …</code> on every node, rules with <code>spread: global</code> share one
        limit between regions: each region spends its home without a round trip to the global Redis, and leases units
        from a common pool beyond it. While the global Redis is unreachable, only homes and units already leased are
        available.
      </EmptyState>
    </Panel>
  )
}
