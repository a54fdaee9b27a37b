// Figures of the guard: the share of paired requests that only the new version refuses, over time and in numbers.

import { Chart } from '../../components/chart.tsx'
import { Num } from '../../components/number.tsx'
import { Status } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { grouped, percent } from '../../format.ts'
import { useApi } from '../../resource.ts'
import type { Proposal, RuleFigures } from './rule.ts'

const REFRESH_MS = 5000
const THRESHOLD_DEFAULT = 5

type Window = { readonly at: string; readonly pairs: number; readonly newly_denied_percent: number | null }
type Figures = {
  readonly window_ms: number
  readonly rules: readonly { readonly rule_id: string; readonly windows: readonly Window[] }[]
}

export function GuardFigures({ proposal }: { readonly proposal: Proposal }) {
  const { guard, verdict, state, proposal_id: id } = proposal
  const isRolling = state === 'rolling_out'
  const isPaused = proposal.step?.paused != null // the verdict may be newer than the pause
  const { data } = useApi<Figures>(
    `/rate-limit/proposals/${encodeURIComponent(id)}/figures`,
    {},
    { refreshMs: REFRESH_MS, enabled: isRolling && guard !== 'off' },
  )
  if (guard === 'off') return <p class="muted">The guard is off: nothing stops this rollout by itself.</p>
  if (!isRolling && verdict === null) return null
  const threshold = guard.newly_denied?.points ?? THRESHOLD_DEFAULT
  return (
    <section>
      <h3>Guard</h3>
      {verdict !== null && (
        <p>
          {isPaused && 'Last verdict: '}
          <Status health={isPaused ? 'off' : VERDICTS[verdict.outcome].health}>{VERDICTS[verdict.outcome].text}</Status>
          : {grouped(verdict.reason)}
        </p>
      )}
      {isRolling &&
        data?.rules.map(({ rule_id: ruleId, windows }) => (
          <GuardChart
            key={ruleId}
            ruleId={ruleId}
            windows={windows}
            threshold={threshold}
            share={verdict?.rules.find(({ rule_id: known }) => known === ruleId)?.newly_denied_percent ?? null}
          />
        ))}
      {verdict !== null && (
        <Table
          caption="Figures of the guard"
          columns={COLUMNS}
          rows={verdict.rules}
          rowKey={({ rule_id: ruleId }) => ruleId}
          empty="No figures yet."
        />
      )}
    </section>
  )
}

const VERDICTS = {
  pass: { health: 'good', text: 'passes' },
  hold: { health: 'off', text: 'waits for evidence' },
  fail: { health: 'bad', text: 'fails' },
  error: { health: 'warning', text: 'cannot judge' },
} as const

const COLUMNS: readonly Column<RuleFigures>[] = [
  { title: 'Rule', cell: ({ rule_id: id }) => <span class="mono">{id}</span> },
  { title: 'Pairs', align: 'right', cell: ({ pairs }) => <Num value={pairs} /> },
  {
    title: 'Newly denied',
    align: 'right',
    cell: ({ newly_denied_percent: share }) => <span class="num">{share === null ? '–' : `${share} %`}</span>,
  },
  { title: 'Windows above', align: 'right', cell: ({ windows_above: count }) => <Num value={count ?? null} /> },
  { title: 'Newly allowed', align: 'right', cell: ({ newly_allowed: count }) => <Num value={count} /> },
  { title: 'Offset', align: 'right', wide: true, cell: ({ offset }) => <Num value={offset} /> },
  { title: 'Both denied', align: 'right', wide: true, cell: ({ both_denied: count }) => <Num value={count} /> },
  { title: 'Keys', align: 'right', wide: true, cell: ({ keys }) => <Num value={keys} /> },
]

type ChartProps = {
  readonly ruleId: string
  readonly windows: readonly Window[]
  readonly threshold: number
  /** Share of the step, in per cent. */
  readonly share: number | null
}

function GuardChart({ ruleId, windows, threshold, share }: ChartProps) {
  if (windows.length < 2) return <p class="muted">The chart of {ruleId} appears after two windows with traffic.</p>
  return (
    <Chart
      summary={`Newly denied requests of ${ruleId}: ${share ?? 0} % in this step; the guard acts at ${threshold} %`}
      times={windows.map(({ at }) => Date.parse(at))}
      series={[
        { name: 'Newly denied', colour: 'refused', fill: true, values: windows.map((one) => one.newly_denied_percent) },
        { name: 'Threshold', colour: 'series-3', values: windows.map(() => threshold) },
      ]}
      format={(value) => percent(value / 100)}
      height={140}
    />
  )
}
