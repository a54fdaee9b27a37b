// Overview of the fleet: traffic, refusals, latency, and the health of every part. Live; from a minute to 30 days.

import { useLocation } from 'preact-iso'
import { Chart, type Shade } from '../../components/chart.tsx'
import { DemoTraffic } from '../../components/demo-traffic.tsx'
import { Failure, Notice } from '../../components/notice.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { RangePicker } from '../../components/range-picker.tsx'
import { Status } from '../../components/status.tsx'
import { type Fleet, useFleet } from '../../fleet.ts'
import { duration, percent, rate, wholeSpan } from '../../format.ts'
import { type Range, urlOf, useRange } from '../../location.ts'
import { type Resource, useApi } from '../../resource.ts'
import { Alerts } from './alerts.tsx'
import {
  degradedShades,
  type Figures,
  type LatencyTimeline,
  liveFigures,
  storedFigures,
  type Timeline,
  withNewest,
} from './figures.ts'
import { Nodes, Parts } from './nodes.tsx'
import { Tiles } from './tiles.tsx'
import { TopClients, TopRules } from './top.tsx'
import './overview.css'

const REFRESH_MS = 15_000
/** Ranges up to this length are shown from the live stream. */
const LIVE_SECONDS_MAX = 300

export function Page() {
  const range = useRange()
  const { fleet, stream, silentMs } = useFleet()
  const isStale = silentMs !== undefined
  const isLive = range.name !== undefined && range.seconds <= LIVE_SECONDS_MAX
  const stored = useStored(range, !isLive)
  // Without stored totals, the last five minutes are all that is known.
  const hasNoTotals = stored.errorCode === 'NO_ANALYTICS'
  const live = fleet?.figures.find(({ step_seconds: step }) => step * 60 === (isLive ? range.seconds : 300))
  const newest = live && liveFigures(live)
  const isNow = range.name !== undefined
  // Stored totals lack the newest requests: alone, they may show a page without any for a moment.
  const isEarly = isNow && fleet === undefined && stream.error === undefined
  const figures =
    isLive || hasNoTotals
      ? newest
      : stored.figures && !isEarly
        ? withNewest(stored.figures, isNow ? newest : undefined)
        : undefined
  return (
    <>
      <PageHead title="Overview">
        <LiveStatus isLive={stream.name === 'open' && !isStale} />
        <RangePicker />
      </PageHead>
      <Failure error={stream.error} />
      {silentMs !== undefined && (
        <Notice tone="warning">
          The service has not answered for {wholeSpan(silentMs / 1000)}: its nodes and rates are not known.
        </Notice>
      )}
      {!isStale && <Alerts fleet={fleet} />}
      <DemoTraffic requests={fleet && !isStale ? requestsOf(fleet) : undefined} />
      {hasNoTotals && !isLive && (
        <Notice>
          The last five minutes: this node stores no totals. Keep the rules in a database, or configure the sink
          clickhouse, to see longer ranges.
        </Notice>
      )}
      {!hasNoTotals && <Failure error={stored.error} retry={stored.reload} />}
      <Tiles
        figures={figures}
        minute={fleet?.figures[0] && !isStale ? liveFigures(fleet.figures[0]) : undefined}
        fleet={fleet}
        isStale={isStale}
      />
      <Charts figures={figures} />
      <div class="columns">
        <TopRules range={range} />
        <TopClients range={range} />
      </div>
      <Parts fleet={fleet} isStale={isStale} />
      <Nodes fleet={fleet} isStale={isStale} />
    </>
  )
}

/** In the last five minutes, the longest of the live ranges, on all nodes. */
function requestsOf({ figures }: Fleet): number {
  return Math.max(
    0,
    ...figures.map(({ allowed, refused }) => [...allowed, ...refused].reduce((sum, one) => sum + one, 0)),
  )
}

type Stored = Pick<Resource<unknown>, 'error' | 'errorCode' | 'reload'> & { readonly figures: Figures | undefined }

function useStored(range: Range, enabled: boolean): Stored {
  const options = { enabled, refreshMs: range.name === undefined ? undefined : REFRESH_MS }
  const timeline = useApi<Timeline>('/analytics/timeline', { ...range.params, by: 'source' }, options)
  const latency = useApi<LatencyTimeline>('/analytics/latency', range.params, options)
  return {
    figures: enabled && timeline.data !== undefined ? storedFigures(timeline.data, latency.data) : undefined,
    error: enabled ? timeline.error : undefined,
    errorCode: enabled ? timeline.errorCode : undefined,
    reload: timeline.reload,
  }
}

function LiveStatus({ isLive }: { readonly isLive: boolean }) {
  return (
    <span class="live" aria-live="polite">
      {isLive ? <Status health="good">Live</Status> : <Status health="warning">Connecting</Status>}
    </span>
  )
}

const NO_FIGURES: Figures = {
  stepSeconds: 1,
  times: [],
  allowed: [],
  refused: [],
  sources: { store: [], lease: [], local: [], policy: [] },
  p50: [],
  p99: [],
}

function Charts({ figures = NO_FIGURES }: { readonly figures: Figures | undefined }) {
  const { path, query, route } = useLocation()
  const shades = degradedShades(figures)
  const onSelect = (fromMs: number, toMs: number) => {
    const [from, to] = [fromMs, toMs].map((ms) => new Date(Math.round(ms / 60_000) * 60_000).toISOString())
    if (from !== to) route(urlOf(path, { ...query, range: undefined, from, to }))
  }
  const shared = { times: figures.times, shades, ...(figures.stepSeconds >= 60 && { onSelect }) }
  const refused = figures.refused.reduce((sum, one) => sum + one, 0)
  const share = refused / Math.max(1e-9, refused + figures.allowed.reduce((sum, one) => sum + one, 0))
  return (
    <>
      <Panel title="Requests per second" note={<ShadeNote shades={shades} />}>
        <Chart
          {...shared}
          summary={`Requests per second, ${percent(share)} refused`}
          format={rate}
          stacked
          series={[
            { name: 'Refused', colour: 'refused', values: figures.refused },
            { name: 'Allowed', colour: 'allowed', values: figures.allowed },
          ]}
        />
      </Panel>
      <div class="columns">
        <Panel title="Decided by" note="lease: without a round trip; policy: on_fail">
          <Chart
            {...shared}
            summary="Decisions per second, by where they were made"
            format={rate}
            stacked
            height={140}
            series={[
              { name: 'policy', colour: 'series-5', values: figures.sources.policy },
              { name: 'local', colour: 'series-3', values: figures.sources.local },
              { name: 'store', colour: 'series-2', values: figures.sources.store },
              { name: 'lease', colour: 'series-1', values: figures.sources.lease },
            ]}
          />
        </Panel>
        <Panel title="Decision latency">
          <Chart
            {...shared}
            summary="Latency of decisions, median and 99th percentile"
            format={duration}
            height={140}
            series={[
              { name: 'p99', colour: 'series-4', values: figures.p99 },
              { name: 'p50', colour: 'series-1', values: figures.p50 },
            ]}
          />
        </Panel>
      </div>
    </>
  )
}

function ShadeNote({ shades }: { readonly shades: readonly Shade[] }) {
  if (shades.length === 0) return null
  return (
    <span>
      <span class="shade-key" /> the store did not answer, on_fail decided
    </span>
  )
}
