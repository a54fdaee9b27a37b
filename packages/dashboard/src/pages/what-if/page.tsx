// The page "What if": another limit for a rule. Replays recorded requests, or
// those of a log file, in a worker while the user drags.

import { hasPermits } from 'sluice/algorithms'
import { EmptyState } from '../../components/empty-state.tsx'
import { SelectField } from '../../components/field.tsx'
import { Failure } from '../../components/notice.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { RangePicker } from '../../components/range-picker.tsx'
import { bytes, fullCount } from '../../format.ts'
import { useQuery, useRange } from '../../location.ts'
import type { RecordingSummary } from '../../replay/protocol.ts'
import { type RecordingResource, type ReplayWorker, useRecording, useReplayWorker } from '../../replay/replay-worker.ts'
import { useApi } from '../../resource.ts'
import type { Rule, RuleList } from '../rules/rule.ts'
import { changeOf } from './candidate.ts'
import { LogField, LogNotice, type OpenedLog, useLogFile } from './log-file.tsx'
import type { Source } from './result.tsx'
import { Study } from './study.tsx'
import '../rules/rules.css'
import './what-if.css'

/** As many as a browser replays in about a second. */
const REQUESTS = 100_000

export function Page() {
  const [query, setQuery] = useQuery()
  const range = useRange()
  const worker = useReplayWorker()
  const log = useLogFile(worker)
  const isEvents = log.opened === undefined
  const rules = useApi<RuleList>('/rate-limit/rules', { enabled: 'any' })
  const asked = { ...range.params, limit: REQUESTS }
  const recording = useRecording(worker, asked, isEvents)
  const limited = rules.data?.rules.filter((rule) => changeOf(rule) !== undefined && !hasPermits(rule))
  // The rule that refuses most is the most interesting one.
  const top = useApi<{ top: readonly { name: string }[] }>('/analytics/top', { ...range.params, of: 'rule', count: 20 })
  const byRank = top.data?.top.flatMap(({ name }) => limited?.find(({ rule_id: id }) => id === name) ?? [])
  const isRanked = top.data !== undefined || top.error !== undefined
  const rule =
    limited?.find(({ rule_id: id }) => id === query.rule) ?? (isRanked ? (byRank?.[0] ?? limited?.[0]) : undefined)
  return (
    <>
      <PageHead title="What if">
        {isEvents && (
          <>
            <RangePicker />
            <button type="button" onClick={recording.reload} disabled={recording.isLoading}>
              Load again
            </button>
          </>
        )}
      </PageHead>
      <Failure error={rules.error} retry={rules.reload} />
      {isEvents && recording.errorCode !== 'NO_ANALYTICS' && (
        <Failure error={recording.error} retry={recording.reload} />
      )}
      <div class="what-if-choice">
        <SelectField
          label="Rule"
          value={rule?.rule_id ?? ''}
          options={Object.fromEntries(
            (limited ?? []).map(({ rule_id: id, name }) => [id, name ? `${id}: ${name}` : id]),
          )}
          onValue={(id) => setQuery({ rule: id, limit: undefined, burst: undefined, algorithm: undefined })}
        />
        <LogField {...log} />
      </div>
      <LogNotice {...log} />
      <Content
        worker={worker}
        isEmpty={limited?.length === 0}
        rules={rules.data}
        rule={rule}
        log={log.opened}
        recording={recording}
      />
    </>
  )
}

type ContentProps = {
  readonly worker: ReplayWorker
  /** No rule has a limit. */
  readonly isEmpty: boolean
  readonly rules: RuleList | undefined
  readonly rule: Rule | undefined
  readonly log: OpenedLog | undefined
  readonly recording: RecordingResource
}

function Content({ worker, isEmpty, rules, rule, log, recording }: ContentProps) {
  const { data, errorCode, bytes: read } = recording
  if (isEmpty) {
    return (
      <EmptyState title="No rule with a limit" action={<a href="/rules">Rules</a>}>
        Create a rule first. Then drag its limit here to see how past requests would have been decided.
      </EmptyState>
    )
  }
  if (log === undefined && errorCode === 'NO_ANALYTICS') {
    return (
      <EmptyState title="This node stores no events">
        Open a log file instead. To replay events, keep the rules in a database, or configure the sink clickhouse.
      </EmptyState>
    )
  }
  if (log === undefined && data?.requests === 0) {
    return (
      <EmptyState title="No requests in this time range" action={<a href="/learn">Try the simulator instead</a>}>
        Choose a longer range, or open a log file. Decisions appear here about two seconds after they happen.
      </EmptyState>
    )
  }
  const source = log === undefined ? data && eventsSource(data) : logSource(log)
  if (rules === undefined || rule === undefined || source === undefined) {
    return (
      <Panel title="Loading requests" note={read > 0 && bytes(read)}>
        <span class="skeleton" />
      </Panel>
    )
  }
  return <Study key={`${source.id} ${rule.rule_id}`} worker={worker} rules={rules} rule={rule} source={source} />
}

function eventsSource({ requests, ...facts }: RecordingSummary): Source {
  return { id: `events ${facts.fromMs} ${facts.toMs}`, text: `${fullCount(requests)} recorded requests`, ...facts }
}

function logSource({ id, requests, fromMs, toMs }: OpenedLog): Source {
  const text = `${fullCount(requests)} requests of the log`
  return { id: `log ${id}`, text, truncated: false, lost: 0, fromMs, toMs }
}
