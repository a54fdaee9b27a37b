// One client: timeline, buckets now, which rules apply and why, exceptions and refusals. Editors can override, ban and
// reset.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { type Client, type ClientKind, KINDS, keyOf } from '../../clients.ts'
import { Chart } from '../../components/chart.tsx'
import { Failure, Notice } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { RangePicker } from '../../components/range-picker.tsx'
import { Tag } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import type { OverrideList } from '../../exceptions/override.ts'
import { type Created, CreatedNotice, OverrideDialog } from '../../exceptions/override-dialog.tsx'
import { OverrideTable } from '../../exceptions/override-table.tsx'
import type { SignalList } from '../../exceptions/signal.ts'
import { shortCount, span } from '../../format.ts'
import { useQuery, useRange } from '../../location.ts'
import { useApi, useResource } from '../../resource.ts'
import { can } from '../../session.ts'
import { useStream } from '../../stream.ts'
import type { DecisionEvent } from '../live/event.ts'
import { Why } from '../live/why.tsx'
import '../live/live.css'
import { Buckets } from './buckets.tsx'
import { Explain } from './explain.tsx'
import { explain, refusingBeside } from './explanation.ts'
import { type Facts, isHashed, type RuleFacts, recentRequests, requestsOfRules } from './facts.ts'

const EVENTS_KEPT = 300
const REQUESTS_MAX = 6
const DRAW_MS = 300
const REFRESH_MS = 10_000
/** An override is in force on every node within a second. */
const REFUSED_REFRESH_MS = 2000

export function ClientPage({ client }: { readonly client: Client }) {
  const key = keyOf(client)
  const [dialog, setDialog] = useState<'factor' | 'ban'>()
  const [done, setDone] = useState<Created>()
  const overrides = useApi<OverrideList>('/rate-limit/overrides', { key }, { refreshMs: REFRESH_MS })
  const [events, refusal] = useEvents(client)
  const requests = useRequests(client, events)
  const onDone = (created: Created) => {
    setDone(created)
    overrides.reload()
  }
  return (
    <>
      <PageHead title={client.id}>
        <Tag>{KINDS[client.kind]}</Tag>
        {can('editor') && !isHashed(client.id) && (
          <>
            <button type="button" onClick={() => setDialog('factor')}>
              Override
            </button>
            <button type="button" class="danger" onClick={() => setDialog('ban')}>
              Ban
            </button>
          </>
        )}
        <RangePicker />
      </PageHead>
      {done !== undefined && (
        <CreatedNotice created={done}>
          <StillRefused client={client} requests={requests} overrideId={done.override_id} />
        </CreatedNotice>
      )}
      {can('editor') && isHashed(client.id) && (
        <Notice>Events store the hash of this key. An override or a ban needs the key itself.</Notice>
      )}
      <Failure error={refusal} />
      <Timeline client={client} />
      <Buckets client={client} requests={requests} />
      <Explain client={client} requests={requests} />
      <div class="columns">
        <Panel title="Overrides">
          <Failure error={overrides.errorCode === 'NO_DATABASE' ? undefined : overrides.error} />
          <OverrideTable
            overrides={overrides.errorCode === undefined ? overrides.data?.overrides : []}
            empty="None: the rules decide about this client."
            withoutKey
            onChange={overrides.reload}
          />
        </Panel>
        <Signals clientKey={key} />
      </div>
      <Refusals events={events} />
      {dialog !== undefined && (
        <OverrideDialog clientKey={key} effect={dialog} onDone={onDone} onClose={() => setDialog(undefined)} />
      )}
    </>
  )
}

type StillRefusedProps = {
  readonly client: Client
  readonly requests: readonly Facts[] | undefined
  readonly overrideId: string
}

/** Names rules that refuse the newest requests whatever the override says. */
function StillRefused({ client, requests = [], overrideId }: StillRefusedProps) {
  const newest = useRef(requests)
  newest.current = requests
  const load = useCallback(
    async (signal: AbortSignal) => {
      const found = await Promise.all(newest.current.map((facts) => explain(client, facts, signal)))
      return [...new Set(found.flatMap((one) => refusingBeside(overrideId, one)))]
    },
    [overrideId],
  )
  const { data = [] } = useResource(load, { refreshMs: REFUSED_REFRESH_MS })
  if (data.length === 0) return null
  return (
    <>
      It does not change <span class="mono">{data.join(', ')}</span>, which still{' '}
      {data.length === 1 ? 'refuses' : 'refuse'} requests of this client.
    </>
  )
}

/** Newest events of the client, live; undefined until the stored ones arrived. And why it refuses to send them. */
function useEvents(client: Client): readonly [readonly DecisionEvent[] | undefined, string | undefined] {
  const [events, setEvents] = useState<readonly DecisionEvent[]>()
  const arrived = useRef<DecisionEvent[]>([])
  const timer = useRef<ReturnType<typeof setTimeout>>()
  const draw = () => {
    clearTimeout(timer.current)
    timer.current = undefined
    const fresh = arrived.current.splice(0)
    setEvents((old = []) => {
      const known = new Set(old.map(({ event_id: id }) => id))
      return [...fresh.filter(({ event_id: id }) => !known.has(id)).reverse(), ...old].slice(0, EVENTS_KEPT)
    })
  }
  const filter = client.kind === 'tenant' ? { tenant: client.id } : { client: client.id, kind: client.kind }
  const state = useStream(
    '/events/stream',
    { ...filter, last: EVENTS_KEPT },
    {
      decision: (data) => {
        arrived.current.push(data as DecisionEvent)
        if (arrived.current.length > EVENTS_KEPT) arrived.current.shift()
        timer.current ??= setTimeout(draw, DRAW_MS)
      },
      stored: draw, // also if there are none
    },
  )
  useEffect(() => () => clearTimeout(timer.current), [])
  return [events, state.error]
}

/** Requests to explain: recent ones, else those that the rules are for. */
function useRequests(client: Client, events: readonly DecisionEvent[] | undefined): readonly Facts[] | undefined {
  const rules = useApi<{ rules: readonly RuleFacts[] }>('/rate-limit/rules', { limit: 1000 })
  const recent = events && recentRequests(client, events, REQUESTS_MAX)
  if (recent !== undefined && recent.length > 0) return recent
  return rules.data && events && requestsOfRules(client, rules.data.rules, REQUESTS_MAX)
}

type Point = { readonly at: string; readonly allowed: number; readonly refused: number }
type Report = {
  readonly from: string
  readonly to: string
  readonly step_seconds: number
  /** Points of a client. */
  readonly points?: readonly Point[]
  /** Points of a tenant. */
  readonly series?: readonly { readonly points: readonly Point[] }[]
}

/** Text on how requests of a kind of client are counted. */
const COUNTED: Readonly<Record<ClientKind, string>> = {
  user: '; at least: each node counts its 200 busiest clients',
  api_key: '; requests that name a user count for the user',
  ip: '; requests that name a user or key count for those',
  tenant: '',
}

function Timeline({ client }: { readonly client: Client }) {
  const range = useRange()
  const params = range.name === '1m' ? { from: '2m' } : range.params
  const isTenant = client.kind === 'tenant'
  const path = isTenant ? '/analytics/timeline' : `/analytics/clients/${encodeURIComponent(client.id)}`
  const more = isTenant ? { tenant: client.id } : { kind: client.kind }
  const refreshMs = range.name === undefined ? undefined : REFRESH_MS
  const { data, error, errorCode } = useApi<Report>(path, { ...params, ...more }, { refreshMs })
  if (errorCode === 'NO_ANALYTICS') return <Notice>This node stores no totals, so there is no timeline.</Notice>
  const points = data?.points ?? data?.series?.flatMap((series) => series.points) ?? []
  const sum = (of: (point: Point) => number) => points.reduce((total, point) => total + of(point), 0)
  const [allowed, refused] = [sum((point) => point.allowed), sum((point) => point.refused)]
  const times = data === undefined ? [] : stepsOf(data)
  const at = new Map(points.map((point) => [Date.parse(point.at), point]))
  return (
    <Panel
      title={data === undefined ? 'Requests' : `Requests per ${span(data.step_seconds)}`}
      note={
        data && (
          <>
            <Num value={allowed} /> allowed, <Num value={refused} /> refused (
            <Num value={refused / Math.max(1, allowed + refused)} as="percent" />){COUNTED[client.kind]}
          </>
        )
      }
    >
      <Failure error={error} />
      <Chart
        summary={`Requests: ${allowed} allowed and ${refused} refused in this time range`}
        format={shortCount}
        stacked
        height={140}
        times={times}
        series={[
          { name: 'Refused', colour: 'refused', values: times.map((time) => at.get(time)?.refused ?? 0) },
          { name: 'Allowed', colour: 'allowed', values: times.map((time) => at.get(time)?.allowed ?? 0) },
        ]}
      />
    </Panel>
  )
}

/** Start of every step of the range, the present one included. */
function stepsOf({ from, to, step_seconds: step }: Report): readonly number[] {
  const [first, last] = [from, to].map((time) => Math.floor(Date.parse(time) / 1000 / step))
  return Array.from({ length: (last ?? 0) - (first ?? 0) + 1 }, (_, index) => ((first ?? 0) + index) * step * 1000)
}

function Signals({ clientKey }: { readonly clientKey: string }) {
  const { data, errorCode } = useApi<SignalList>('/rate-limit/signals', { key: clientKey }, { refreshMs: REFRESH_MS })
  return (
    <Panel title="Abuse signals">
      <Table
        caption="Abuse signals"
        columns={[
          { title: 'Kind', cell: ({ kind }) => <span class="mono">{kind}</span> },
          { title: 'Severity', cell: ({ severity }) => <Tag tone="warning">{severity}</Tag> },
          { title: 'Ends', cell: ({ expires_at: at }) => <Time at={at} as="ago" /> },
        ]}
        rows={errorCode === undefined ? data?.signals : []}
        rowKey={({ signal_id: id }) => id}
        empty="None: no system reported this client."
        loadingRows={1}
      />
    </Panel>
  )
}

const REFUSALS_SHOWN = 12

function Refusals({ events }: { readonly events: readonly DecisionEvent[] | undefined }) {
  const [query, setQuery] = useQuery()
  const refused = events?.filter(({ allowed }) => !allowed).slice(0, REFUSALS_SHOWN)
  const opened = events?.find(({ event_id: id }) => id === query.event)
  const open = useCallback((id: string) => setQuery({ event: id }), [query])
  const columns: Column<DecisionEvent>[] = [
    { title: 'Time', cell: ({ timestamp }) => <Time at={timestamp} /> },
    {
      title: 'Request',
      cell: ({ method, endpoint }) => (
        <span class="mono">
          {method} {endpoint}
        </span>
      ),
    },
    { title: 'Rule', wide: true, cell: ({ rule_id: rule }) => <span class="mono">{rule}</span> },
    { title: 'Limit', align: 'right', wide: true, cell: ({ limit_count: limit }) => <Num value={limit} /> },
    {
      title: '',
      align: 'right',
      cell: ({ event_id: id, endpoint }) => (
        <button type="button" class="link" aria-label={`Why was ${endpoint} refused?`} onClick={() => open(id)}>
          Why
        </button>
      ),
    },
  ]
  return (
    <Panel title="Refusals" note={`the newest ${REFUSALS_SHOWN}, live`}>
      <Table
        caption="Refusals"
        columns={columns}
        rows={refused}
        rowKey={({ event_id: id }) => id}
        empty="No refusal of this client is stored."
        loadingRows={3}
      />
      {opened !== undefined && <Why event={opened} onClose={() => setQuery({ event: undefined })} />}
    </Panel>
  )
}
