// One rule under study: the drag chart, the result while dragging, algorithms side by side, and the way to a proposal.

import { useMemo, useState } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { ALGORITHMS, type AlgorithmName } from 'sluice/algorithms'
import { ABOUT } from '../../bucket/algorithms.ts'
import { SelectField } from '../../components/field.tsx'
import { Failure } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { Slider } from '../../components/slider.tsx'
import { fullCount, span } from '../../format.ts'
import { usePageUrl, useQuery } from '../../location.ts'
import { type ReplayWorker, useLatest } from '../../replay/replay-worker.ts'
import { can } from '../../session.ts'
import { ProposeDialog } from '../rules/propose-dialog.tsx'
import type { Rule, RuleList } from '../rules/rule.ts'
import { useCompact } from '../rules/use-compact.ts'
import { Algorithms } from './algorithms.tsx'
import { type Change, COMPARED, candidateOf, changeOf, impossible, withLimit, writtenCandidate } from './candidate.ts'
import { DragChart } from './drag-chart.tsx'
import { ChangedClients, Coverage, RefusedChart, Result, RuleResults, type Source } from './result.tsx'
import { scaleOf } from './scale.ts'

type Props = {
  readonly worker: ReplayWorker
  readonly rules: RuleList
  readonly rule: Rule
  readonly source: Source
}

export function Study({ worker, rules, rule, source }: Props) {
  const active = changeOf(rule) as Change & { windowSeconds: number } // the page offers rules with a limit only
  const [change, setChange, commit] = useChange(active)
  const { windowSeconds } = active
  const profile = useLatest(rule.rule_id, () => worker.ask('profile', { rule, windowSeconds }), true)
  const simulate = (one: Change) => {
    const others = rules.rules.filter(({ rule_id: id }) => id !== rule.rule_id)
    return worker.ask('simulate', { rules: [...others, candidateOf(rule, one)], against: rules.rules })
  }
  const asked = JSON.stringify(change)
  const result = useLatest(asked, async () => ({ asked, figures: await simulate(change) }), true)
  const figures = result.data?.figures
  // While the user drags, figures follow a little later; a table of another limit would be taken for this one.
  const current = result.data?.asked === asked ? figures : undefined
  // The scale stays while the user drags.
  const { max, reach } = useMemo(() => scaleOf(profile.data, active.limit), [profile.data, active.limit])
  return (
    <div class="stack">
      <Coverage result={figures} source={source} rule={rule} />
      <Panel title="Limit over real traffic" note={`${fullCount(change.limit)} per ${span(windowSeconds)}`}>
        <DragChart
          profile={profile.data}
          limit={change.limit}
          active={active.limit}
          max={max}
          reach={reach}
          windowText={span(windowSeconds)}
          onLimit={(limit) => setChange(withLimit(change, limit))}
          onCommit={(limit) => commit(withLimit(change, limit))}
        />
        <Controls change={change} max={reach} setChange={setChange} commit={commit} />
        <Failure error={profile.error ?? result.error} />
      </Panel>
      <Result result={figures} ruleId={rule.rule_id} isBusy={result.isBusy}>
        <CreateShadow rule={rule} change={change} version={rules.version} active={active} />
      </Result>
      <Panel title="Refused over time">
        <RefusedChart result={figures} />
      </Panel>
      <div class="two-columns">
        <Panel title="Affected clients" note="most refused first">
          <ChangedClients result={current} />
        </Panel>
        <Panel title="Algorithms side by side" note="the same limit and requests">
          <Algorithms
            change={change}
            ruleId={rule.rule_id}
            simulate={simulate}
            onSelect={(algorithm) => commit({ ...change, algorithm })}
          />
        </Panel>
      </div>
      <Panel title="All rules" note="most refused first">
        <RuleResults result={current} ruleId={rule.rule_id} />
      </Panel>
    </div>
  )
}

type Commit = (change: Change) => void

/** The change, kept in the URL once the user lets go. */
function useChange(active: Change): [Change, Commit, Commit] {
  const [query, setQuery] = useQuery()
  const number = (text: string | undefined, fallback: number) => {
    const value = Math.round(Number(text ?? Number.NaN))
    return value >= 1 ? value : fallback
  }
  const moved = withLimit(active, number(query.limit, active.limit))
  const algorithm = COMPARED.find((name) => name === query.algorithm) ?? active.algorithm
  const first = { limit: moved.limit, burst: number(query.burst, moved.burst), algorithm }
  const [change, setChange] = useState<Change>(first)
  const commit = (next: Change) => {
    setChange(next)
    const { limit, burst, algorithm: chosen } = next
    setQuery({
      limit: limit === active.limit ? undefined : String(limit),
      burst: burst === withLimit(active, limit).burst ? undefined : String(burst),
      algorithm: chosen === active.algorithm ? undefined : chosen,
    })
  }
  return [change, setChange, commit]
}

type ControlsProps = {
  readonly change: Change
  readonly max: number
  readonly setChange: Commit
  readonly commit: Commit
}

function Controls({ change, max, setChange, commit }: ControlsProps) {
  const { limit, burst, algorithm } = change
  const hasBurst = ALGORITHMS[algorithm].burst
  const titles = COMPARED.filter((name) => impossible(name, change) === undefined).map((name) => [
    name,
    ABOUT[name].title,
  ])
  return (
    <div class="what-if-controls">
      <Slider
        label="Limit"
        min={1}
        max={max}
        value={limit}
        text={unitsText(limit)}
        onValue={(value) => setChange(withLimit(change, value))}
        onCommit={(value) => commit(withLimit(change, value))}
      />
      <Slider
        label="Burst"
        min={1}
        max={Math.max(max, 2 * burst)}
        value={burst}
        text={hasBurst ? unitsText(burst) : 'not used'}
        disabled={!hasBurst}
        onValue={(value) => setChange({ ...change, burst: value })}
        onCommit={(value) => commit({ ...change, burst: value })}
      />
      <SelectField
        label="Algorithm"
        value={algorithm}
        options={Object.fromEntries(titles)}
        onValue={(value) => commit({ ...change, algorithm: value as AlgorithmName })}
      />
    </div>
  )
}

function unitsText(count: number): string {
  return `${fullCount(count)} ${count === 1 ? 'unit' : 'units'}`
}

type CreateProps = {
  readonly rule: Rule
  readonly change: Change
  readonly version: number
  readonly active: Change
}

/** A prefilled proposal whose first step is shadow. */
function CreateShadow({ rule, change, version, active }: CreateProps) {
  const { route } = useLocation()
  const pageUrl = usePageUrl()
  const [isOpen, setOpen] = useState(false)
  const before = useCompact(rule)
  const after = before && writtenCandidate(rule, before, change)
  const isSame = (['limit', 'burst', 'algorithm'] as const).every((name) => change[name] === active[name])
  if (!can('editor')) return <span class="muted">An editor can propose this change.</span>
  const done = (id: string) => route(pageUrl(`/rules/${encodeURIComponent(rule.rule_id)}`, { proposal: id }))
  return (
    <>
      <button type="button" class="primary" disabled={isSame || after === undefined} onClick={() => setOpen(true)}>
        Create as shadow …
      </button>
      {isOpen && before !== undefined && after !== undefined && (
        <ProposeDialog
          before={before}
          after={after}
          baseVersion={version}
          plan="shadow"
          onClose={() => setOpen(false)}
          onDone={done}
        />
      )}
    </>
  )
}
