// Decisions of all nodes as they happen, with filters in the URL. A row opens the reason for its decision.

import { useEffect, useRef, useState } from 'preact/hooks'
import { DemoButton } from '../../components/demo-traffic.tsx'
import { EmptyState } from '../../components/empty-state.tsx'
import { Failure, Notice } from '../../components/notice.tsx'
import { PageHead } from '../../components/panel.tsx'
import { Status, Tag } from '../../components/status.tsx'
import { Time } from '../../components/time.tsx'
import { VirtualList } from '../../components/virtual-list.tsx'
import { fullCount, shortCount } from '../../format.ts'
import { useQuery } from '../../location.ts'
import { useApi } from '../../resource.ts'
import { useStream } from '../../stream.ts'
import { clientOf, type DecisionEvent, resultOf } from './event.ts'
import { Filters } from './filters.tsx'
import { unitsText } from './reason.ts'
import { Why } from './why.tsx'
import './live.css'

/** Newest events that are kept; older ones are dropped. */
const KEPT = 2000
const FIRST = 200
const ROW_HEIGHT = 28
/** Two lines, so that path and rule can be read on a phone. */
const NARROW_ROW_HEIGHT = 50
const NARROW = matchMedia('(max-width: 760px)')
/** Events are added to the page in groups: a busy fleet sends hundreds a second. */
const DRAW_MS = 250

export function Page() {
  const [query, setQuery] = useQuery()
  const [isPaused, setPaused] = useState(false)
  const isNarrow = useNarrow()
  const { rule, result, client, kind, endpoint, source } = query
  const filter = { rule, result, client, endpoint, source, ...(client !== undefined && { kind }) }
  const { events, isLoaded, skipped, state, clear } = useTail(filter, isPaused)
  const probe = useApi<unknown>('/analytics/top', { from: '1m', count: 1 })
  const opened = events.find(({ event_id: id }) => id === query.event)
  const [kept, setKept] = useState<DecisionEvent>()
  const shown = opened ?? (kept?.event_id === query.event ? kept : undefined)
  if (probe.errorCode === 'NO_ANALYTICS') return <NoEvents />
  return (
    <div class="live-page">
      <PageHead title="Live tail">
        <span aria-live="polite">
          {isPaused ? (
            <Status health="off">Paused</Status>
          ) : (
            <Status health={state.name === 'open' ? 'good' : 'warning'}>
              {state.name === 'open' ? 'Live' : 'Connecting'}
            </Status>
          )}
        </span>
        <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>
          {isPaused ? 'Resume' : 'Pause'}
        </button>
        <button type="button" onClick={clear}>
          Clear
        </button>
      </PageHead>
      <Filters />
      <Failure error={state.error} />
      {skipped > 0 && <Notice>Some events are not shown: there were more than this page can follow.</Notice>}
      <Header />
      <VirtualList
        label="Decisions"
        items={events}
        itemKey={({ event_id: id }) => id}
        rowHeight={isNarrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT}
        rowClass={({ allowed }) => (allowed ? '' : 'refused')}
        row={(event) => <Row event={event} />}
        onOpen={(event) => {
          setKept(event)
          setQuery({ event: event.event_id })
        }}
        empty={
          isLoaded ? (
            <Waiting isFiltered={Object.values(filter).some((value) => value !== undefined)} />
          ) : (
            <span class="skeleton" />
          )
        }
      />
      {shown !== undefined && <Why event={shown} onClose={() => setQuery({ event: undefined })} />}
    </div>
  )
}

function useNarrow(): boolean {
  const [isNarrow, setNarrow] = useState(NARROW.matches)
  useEffect(() => {
    const onChange = () => setNarrow(NARROW.matches)
    NARROW.addEventListener('change', onChange)
    return () => NARROW.removeEventListener('change', onChange)
  }, [])
  return isNarrow
}

type Tail = {
  /** Newest first. */
  readonly events: readonly DecisionEvent[]
  /** Whether the stored events have arrived. */
  readonly isLoaded: boolean
  readonly skipped: number
  readonly state: ReturnType<typeof useStream>
  clear(): void
}

/** While paused, the stream is closed: resuming shows the newest events again. */
function useTail(filter: Readonly<Record<string, string | undefined>>, isPaused: boolean): Tail {
  const [events, setEvents] = useState<readonly DecisionEvent[]>([])
  const [isLoaded, setLoaded] = useState(false)
  const [skipped, setSkipped] = useState(0)
  const arrived = useRef<DecisionEvent[]>([])
  const timer = useRef<ReturnType<typeof setTimeout>>()
  const draw = () => {
    clearTimeout(timer.current)
    timer.current = undefined
    const fresh = arrived.current.splice(0)
    setEvents((old) => {
      const known = new Set(old.map(({ event_id: id }) => id))
      const added = fresh.filter(({ event_id: id }) => !known.has(id)).reverse()
      return [...added, ...old].slice(0, KEPT)
    })
  }
  const state = useStream(
    isPaused ? undefined : '/events/stream',
    { ...filter, last: FIRST },
    {
      decision: (data) => {
        arrived.current.push(data as DecisionEvent)
        if (arrived.current.length > KEPT) arrived.current.shift()
        timer.current ??= setTimeout(draw, DRAW_MS)
      },
      stored: () => {
        draw()
        setLoaded(true)
      },
      skipped: () => setSkipped((count) => count + 1),
    },
  )
  const clear = () => {
    arrived.current = []
    setEvents([])
    setSkipped(0)
  }
  const filtered = JSON.stringify(filter)
  useEffect(() => {
    setLoaded(false)
    return clear
  }, [filtered])
  useEffect(() => () => clearTimeout(timer.current), [])
  return { events, isLoaded, skipped, state, clear }
}

function Header() {
  return (
    <div class="live-row live-header" aria-hidden="true">
      <span>Time</span>
      <span>Result</span>
      <span>Client</span>
      <span>Request</span>
      <span>Rule</span>
      <span class="right">Used</span>
      <span>Decided by</span>
    </div>
  )
}

function Row({ event }: { readonly event: DecisionEvent }) {
  const { timestamp, rule_id: rule, method, endpoint, current_count: used, limit_count: limit, source } = event
  const { text, tone } = resultOf(event)
  if (event.operation === 'refund') {
    return (
      <span class="live-row">
        <Time at={timestamp} />
        <Tag tone={tone}>{text}</Tag>
        <span class="cut muted">returns {unitsText(event.request_cost)}</span>
        <span class="mono cut">request {event.request_id}</span>
      </span>
    )
  }
  return (
    <span class="live-row">
      <Time at={timestamp} />
      <Tag tone={tone}>{text}</Tag>
      <span class="mono cut">{clientOf(event)}</span>
      <span class="mono cut">
        {method} {endpoint ?? ''}
      </span>
      <span class="mono cut">{rule ?? <span class="muted">{event.allowed ? 'no rule' : 'ban'}</span>}</span>
      <span class="num right" title={limit === null ? undefined : `${fullCount(used)} of ${fullCount(limit)}`}>
        {limit === null ? '' : `${shortCount(used)} / ${shortCount(limit)}`}
      </span>
      <span class="cut muted">{source}</span>
    </span>
  )
}

function Waiting({ isFiltered }: { readonly isFiltered: boolean }) {
  return (
    <EmptyState
      title={isFiltered ? 'No decision matches the filter yet' : 'Waiting for requests'}
      {...(!isFiltered && { action: <DemoButton /> })}
    >
      Every decision appears here about two seconds after it was made, on any node. Refusals are always recorded; of
      admissions, a busy service records a sample.
    </EmptyState>
  )
}

function NoEvents() {
  return (
    <>
      <PageHead title="Live tail" />
      <EmptyState title="This node stores no events">
        Keep the rules in a database, or configure the sink <code>clickhouse</code>, and decisions appear here as they
        happen.
      </EmptyState>
    </>
  )
}
