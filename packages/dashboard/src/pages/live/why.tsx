// Explains a decision: rule, version, limit and numbers, where it was decided, and the response that the client
// received.

import type { ComponentChildren } from 'preact'
import { nowMs } from '../../clock.ts'
import { Dialog } from '../../components/dialog.tsx'
import { Num } from '../../components/number.tsx'
import { Tag } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { duration, fullCount, span } from '../../format.ts'
import { usePageUrl } from '../../location.ts'
import { type Resource, useApi } from '../../resource.ts'
import { clientOf, type DecisionEvent, SOURCES } from './event.ts'

type Outcome = {
  readonly rule_id: string
  readonly name: string
  readonly scope: string
  readonly mode: string
  readonly allowed: boolean
  readonly limit: number
  readonly remaining: number
  readonly window_ms: number
}
type Decision = { readonly limits: readonly Outcome[]; readonly headers: Readonly<Record<string, string>> }

/** Nodes keep decisions in detail for this long. */
const KEPT_MS = 3_600_000

export function Why({ event, onClose }: { readonly event: DecisionEvent; readonly onClose: () => void }) {
  // Nodes keep details of refusals only, unless the request had an id of its own.
  const isKept = !event.allowed && nowMs() - Date.parse(event.timestamp) < KEPT_MS
  const path = `/rate-limit/decisions/${encodeURIComponent(event.request_id)}`
  const decision = useApi<Decision>(path, {}, { enabled: isKept })
  return (
    <Dialog kind="side" title={event.allowed ? 'Why it was allowed' : 'Why it was refused'} onClose={onClose}>
      <p class="why-sentence">{sentenceOf(event)}</p>
      <dl class="facts">
        <Fact name="Time">
          <Time at={event.timestamp} />
        </Fact>
        <Fact name="Request">
          <span class="mono">
            {event.method} {event.endpoint}
          </span>
        </Fact>
        <Fact name="Client">
          <span class="mono">{clientOf(event)}</span>
        </Fact>
        <Fact name="Address">{event.ip && <span class="mono">{event.ip}</span>}</Fact>
        <Fact name="Plan, tenant">{[event.plan, event.tenant].filter((text) => text !== null).join(', ')}</Fact>
        <Fact name="Rule">{event.rule_id && <RuleLink event={event} />}</Fact>
        <Fact name="Bucket">
          <span class="mono">{event.bucket_key}</span>
        </Fact>
        <Fact name="Decided by">
          <Tag>{event.source}</Tag> {SOURCES[event.source]}
        </Fact>
        <Fact name="Node">
          {event.node}
          {event.region !== null && `, region ${event.region}`}, in {duration(event.decision_us)}
        </Fact>
        <Fact name="Request id">
          <span class="mono">{event.request_id}</span>
        </Fact>
      </dl>
      <Told event={event} decision={decision} isKept={isKept} />
      {isKept && <Limits decision={decision} />}
    </Dialog>
  )
}

function sentenceOf(event: DecisionEvent): string {
  const {
    allowed,
    rule_id: rule,
    limit_name: name,
    limit_count: limit,
    remaining,
    cost,
    shadow_refused_by: shadow,
  } = event
  const more = shadow === null ? '' : ` In shadow mode, ${shadow} would have refused it.`
  if (rule === null || limit === null) return `No enforced rule matched this request, so it was allowed.${more}`
  const limitText = `${fullCount(limit)} units${name === null || name === 'default' ? '' : ` (${name})`}`
  const units = `${fullCount(cost)} ${cost === 1 ? 'unit' : 'units'}`
  if (allowed) return `Of ${limitText} of ${rule}, ${fullCount(remaining)} were left after this request.${more}`
  const wait = event.retry_after_ms === null ? 'Waiting will not help.' : `Enough units after ${waitOf(event)}.`
  return `The request needed ${units}; of ${limitText} of ${rule}, ${fullCount(remaining)} were left. ${wait}${more}`
}

function waitOf({ retry_after_ms: ms }: DecisionEvent): string {
  return ms !== null && ms < 1000 ? `${Math.ceil(ms)} ms` : span((ms ?? 0) / 1000)
}

function RuleLink({
  event: { rule_id: rule, limit_name: name, version, scope, mode },
}: {
  readonly event: DecisionEvent
}) {
  const pageUrl = usePageUrl()
  return (
    <>
      <a class="mono" href={pageUrl('/live', { rule: rule ?? '' })}>
        {rule}
      </a>{' '}
      <span class="muted">
        limit {name}, {scope}, {mode}, rule set v{version}
      </span>
    </>
  )
}

function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  if (children === null || children === '') return null
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

type ToldProps = {
  readonly event: DecisionEvent
  readonly decision: Resource<Decision>
  readonly isKept: boolean
}

/** The response that the middleware, the gateway or the caller of the API builds from the decision. */
function Told({ event, decision: { data, error }, isKept }: ToldProps) {
  const headers = Object.entries(data?.headers ?? {})
  return (
    <section class="why-part">
      <h3>What the client received</h3>
      <pre class="told">
        {event.allowed ? 'The response of the service, with rate limit headers' : 'HTTP 429 Too Many Requests'}
        {headers.map(([name, value]) => `\n${name}: ${value}`).join('')}
      </pre>
      {(error !== undefined || !isKept) && (
        <p class="muted">Headers and further limits are not known: nodes keep them for refusals, for an hour.</p>
      )}
    </section>
  )
}

const COLUMNS: readonly Column<Outcome>[] = [
  {
    title: 'Limit',
    cell: ({ rule_id: rule, name, mode }) => (
      <>
        <span class="mono">
          {rule}/{name}
        </span>{' '}
        {mode === 'shadow' && <Tag>shadow</Tag>}
      </>
    ),
  },
  { title: 'Per', align: 'right', cell: ({ window_ms: ms }) => span(ms / 1000) },
  { title: 'Units', align: 'right', cell: ({ limit }) => <Num value={limit} /> },
  { title: 'Left', align: 'right', cell: ({ remaining }) => <Num value={remaining} /> },
  {
    title: 'Result',
    cell: ({ allowed }) => <Tag tone={allowed ? 'good' : 'bad'}>{allowed ? 'passed' : 'refused'}</Tag>,
  },
]

function Limits({ decision: { data, error } }: { readonly decision: Resource<Decision> }) {
  if (error !== undefined) return null
  return (
    <section class="why-part">
      <h3>Every limit that was checked</h3>
      <Table
        caption="Every limit that was checked"
        columns={COLUMNS}
        rows={data?.limits}
        rowKey={({ rule_id, name, mode }) => `${rule_id} ${name} ${mode}`}
        empty="None."
        loadingRows={1}
      />
    </section>
  )
}
