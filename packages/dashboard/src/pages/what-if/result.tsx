// Result of a replay: how exact it is, requests and clients whose result changes, and when.

import type { ComponentChildren } from 'preact'
import type { ClientResult, ReplayResult, RuleResult } from 'sluice/replay'
import { Chart } from '../../components/chart.tsx'
import { Notice } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { Panel } from '../../components/panel.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { fullCount, percent, shortCount, span } from '../../format.ts'
import { usePageUrl } from '../../location.ts'
import type { Period } from '../../replay/protocol.ts'
import type { Rule } from '../rules/rule.ts'
import { withZeros } from './timeline.ts'

/** Requests that the worker replays: recorded events, or a log file. */
export type Source = Period & {
  readonly id: string
  /** Number and kind. */
  readonly text: string
  /** Older requests were left out. */
  readonly truncated: boolean
  /** Events that were not stored. */
  readonly lost: number
}

type CoverageProps = {
  readonly result: ReplayResult | undefined
  readonly source: Source
  readonly rule: Rule
}

/** Says whether the figures are exact, scaled, or impossible with this sample. */
export function Coverage({ result, source, rule }: CoverageProps) {
  const own = result?.rules.find(({ rule_id: id }) => id === rule.rule_id)
  const coverage = own?.coverage ?? 'exact'
  const rate = result?.sample_rate ?? 1
  return (
    <Notice tone={coverage === 'exact' || coverage === 'scaled' ? 'info' : 'warning'}>
      {coverage === 'exact' && <>Exact: all {source.text} were replayed.</>}
      {coverage === 'scaled' && (
        <>
          Scaled: {percent(rate)} of the clients were recorded completely. They are replayed exactly, and counts are
          divided by that share.
        </>
      )}
      {coverage === 'incomplete' && <>Incomplete: {source.text} were replayed, with gaps.</>}
      {coverage === 'needs_full_sample' && (
        <>Needs sample 1: {own?.reason}. Start the nodes with --events-sample 1 to study this rule.</>
      )}
      {coverage === 'missing_facts' && <>Not possible with this recording: {own?.reason}.</>}
      <CoveredPeriod {...source} />
      {source.truncated && <> Older requests of the range were left out: this page replays the newest 100,000.</>}
      {source.lost > 0 && <> {fullCount(source.lost)} events were not stored.</>}
      {rule.consistency !== 'strict' && (
        <> Replayed as one strict process: with consistency {String(rule.consistency)}, nodes may differ a little.</>
      )}
    </Notice>
  )
}

function CoveredPeriod({ fromMs, toMs }: Period) {
  if (fromMs === undefined || toMs === undefined) return null
  return (
    <>
      {' '}
      They cover {span((toMs - fromMs) / 1000)}, from <Time at={fromMs} /> to <Time at={toMs} />.
    </>
  )
}

type ResultProps = {
  readonly result: ReplayResult | undefined
  readonly ruleId: string
  readonly isBusy: boolean
  /** The next step. */
  readonly children: ComponentChildren
}

export function Result({ result, ruleId, isBusy, children }: ResultProps) {
  const own = result?.rules.find(({ rule_id: id }) => id === ruleId)
  const total = result === undefined ? 0 : result.new.allowed + result.new.refused
  return (
    <Panel title="Result" note={isBusy ? 'replaying …' : result && `${fullCount(total)} requests`}>
      <dl class="what-if-figures" aria-live="polite">
        <Figure name="Refused by this rule" value={own?.refused} now={own?.now_refused} id="rule-refused" />
        <Figure name="Refused in total" value={result?.new.refused} now={result?.now?.refused} id="refused" />
        <Figure name="Refused clients" value={result?.clients.refused} now={result?.clients.now_refused} id="clients" />
        <Figure name="Newly denied requests" value={result?.changes?.newly_denied} id="newly-denied" />
        <Figure name="Newly allowed requests" value={result?.changes?.newly_allowed} id="newly-allowed" />
        <Figure name="Newly denied clients" value={result?.changes?.clients_newly_denied} id="clients-newly" />
      </dl>
      {children}
    </Panel>
  )
}

type FigureProps = {
  readonly name: string
  readonly value: number | null | undefined
  readonly now?: number | null | undefined
  readonly id: string
}

function Figure({ name, value, now, id }: FigureProps) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <span class="figure" data-figure={id}>
          {fullCount(value)}
        </span>
        {now != null && <span class="muted"> today's rules: {fullCount(now)}</span>}
      </dd>
    </div>
  )
}

export function RefusedChart({ result }: { readonly result: ReplayResult | undefined }) {
  const points = withZeros(result?.timeline)
  const of = (name: 'requests' | 'refused' | 'now_refused') => points.map((point) => point[name] ?? null)
  const [then, now] = [result?.new.refused ?? 0, result?.now?.refused ?? 0]
  return (
    <Chart
      summary={`Refused requests over time: ${then} with the change, ${now} with today's rules`}
      times={points.map(({ at }) => Date.parse(at))}
      series={[
        { name: 'Requests', colour: 'series-1', values: of('requests'), fill: true },
        { name: "Refused by today's rules", colour: 'series-3', values: of('now_refused') },
        { name: 'Refused with the change', colour: 'refused', values: of('refused'), fill: true },
      ]}
      format={shortCount}
      height={150}
    />
  )
}

const COLUMNS: readonly Column<ClientResult>[] = [
  { title: 'Client', cell: ({ client }) => <span class="mono">{client === '' ? 'none' : client}</span> },
  { title: 'Requests', align: 'right', cell: ({ requests }) => <Num value={requests} /> },
  { title: "Today's rules", align: 'right', cell: ({ now_refused: now }) => <Num value={now} /> },
  { title: 'Changed', align: 'right', cell: ({ refused }) => <Num value={refused} /> },
]
const CLIENTS = 10

export function ChangedClients({ result }: { readonly result: ReplayResult | undefined }) {
  return (
    <Table
      caption="Clients that today's rules or the change would refuse"
      columns={COLUMNS}
      rows={result?.top.slice(0, CLIENTS)}
      rowKey={({ client, kind }) => `${kind} ${client}`}
      empty="No client is refused, by today's rules or with the change."
    />
  )
}

const RULES = 20

/** The table of `sluice rules simulate`. A rule links to its own study. */
export function RuleResults({
  result,
  ruleId,
}: {
  readonly result: ReplayResult | undefined
  readonly ruleId: string
}) {
  const pageUrl = usePageUrl()
  const columns: Column<RuleResult>[] = [
    {
      title: 'Rule',
      cell: ({ rule_id: id, mode }) => (
        <>
          <a class="mono" href={pageUrl('/what-if', { rule: id })}>
            {id}
          </a>
          {mode === 'shadow' && <span class="muted"> shadow</span>}
        </>
      ),
    },
    { title: "Today's rules", align: 'right', cell: ({ now_refused: now }) => <Num value={now} /> },
    { title: 'Changed', align: 'right', cell: ({ refused }) => <Num value={refused} /> },
    { title: 'Clients', align: 'right', wide: true, cell: ({ clients_refused: clients }) => <Num value={clients} /> },
    {
      title: 'Coverage',
      wide: true,
      cell: ({ coverage, reason }) => <span class="muted">{reason ?? coverage.replaceAll('_', ' ')}</span>,
    },
  ]
  return (
    <Table
      caption="Refused requests by rule"
      columns={columns}
      rows={result?.rules.slice(0, RULES)}
      rowKey={({ rule_id: id }) => id}
      selected={ruleId}
      empty="No rules."
    />
  )
}
