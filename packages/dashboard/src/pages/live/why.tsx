// Explains a decision: rule, version, limit and numbers, where it was decided, and the response that the client
// received.

import type { ComponentChildren } from 'preact'
import { nowMs } from '../../clock.ts'
import { Dialog } from '../../components/dialog.tsx'
import { Tag } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { type AppliedException, exceptionText } from '../../exceptions/applied.ts'
import { authorText, type Override } from '../../exceptions/override.ts'
import { duration, fullCount, span } from '../../format.ts'
import { usePageUrl } from '../../location.ts'
import { type Resource, useApi } from '../../resource.ts'
import { bucketText, clientOf, type DecisionEvent, SOURCES } from './event.ts'
import { sentenceOf } from './reason.ts'

type Outcome = {
  readonly rule_id: string
  readonly name: string
  readonly scope: string
  readonly mode: string
  readonly allowed: boolean
  readonly limit: number
  readonly remaining: number
  readonly window_ms: number
  /** Version that decided, while the rule rolls out. */
  readonly variant?: 'current' | 'candidate'
}
type Decision = {
  readonly limits: readonly Outcome[]
  readonly headers: Readonly<Record<string, string>>
  /** Undefined: a node of an earlier version recorded it. */
  readonly status?: number
  readonly exceptions?: readonly AppliedException[]
}

/** Nodes keep decisions in detail for this long. */
const KEPT_MS = 3_600_000

export function Why({ event, onClose }: { readonly event: DecisionEvent; readonly onClose: () => void }) {
  // Nodes keep details of refusals only, unless the request had an id of its own.
  const isCheck = event.operation === 'check'
  const isKept = !event.allowed && nowMs() - Date.parse(event.timestamp) < KEPT_MS
  const path = `/rate-limit/decisions/${encodeURIComponent(event.request_id)}`
  const decision = useApi<Decision>(path, {}, { enabled: isKept })
  return (
    <Dialog kind="side" title={titleOf(event)} onClose={onClose}>
      <p class="why-sentence">{sentenceOf(event, decision.data?.exceptions)}</p>
      <dl class="facts">
        <Fact name="Time">
          <Time at={event.timestamp} />
        </Fact>
        <Fact name="Request">
          {event.endpoint !== null && (
            <span class="mono">
              {event.method} {event.endpoint}
            </span>
          )}
        </Fact>
        <Fact name="Client">{event.operation !== 'refund' && <span class="mono">{clientOf(event)}</span>}</Fact>
        <Fact name="Address">{event.ip && <span class="mono">{event.ip}</span>}</Fact>
        <Fact name="Plan, tenant">{[event.plan, event.tenant].filter((text) => text !== null).join(', ')}</Fact>
        <Fact name="Rule">{event.rule_id && <RuleLink event={event} />}</Fact>
        <Fact name="Changed by">{isChanged(decision.data) && <ChangedBy decision={decision.data} />}</Fact>
        <Fact name="Bucket">{bucketText(event) && <span class="mono">{bucketText(event)}</span>}</Fact>
        <Fact name="Decided by">
          {isCheck && (
            <>
              <Tag>{event.source}</Tag> {SOURCES[event.source]}
            </>
          )}
        </Fact>
        <Fact name="Node">
          {event.node}
          {event.region !== null && `, region ${event.region}`}
          {isCheck && `, in ${duration(event.decision_us)}`}
        </Fact>
        <Fact name="Request id">{event.request_id !== '' && <span class="mono">{event.request_id}</span>}</Fact>
      </dl>
      {isCheck && <Told event={event} decision={decision} isKept={isKept} />}
      {isKept && <Limits decision={decision} />}
    </Dialog>
  )
}

function titleOf({ operation, allowed }: DecisionEvent): string {
  if (operation !== 'check') return operation === 'refund' ? 'A refund' : 'A reset'
  return allowed ? 'Why it was allowed' : 'Why it was refused'
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
  if (children === undefined || children === null || children === '' || children === false) return null
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

/** Response that a middleware or gateway builds from the decision. A caller of the API gets 200. */
function Told({ event, decision: { data, error }, isKept }: ToldProps) {
  const headers = Object.entries(data?.headers ?? {})
  return (
    <section class="why-part">
      <h3>What a client behind a gateway or middleware receives</h3>
      <pre class="told">
        {event.allowed ? 'The response of the service, with rate limit headers' : statusLine(data?.status)}
        {headers.map(([name, value]) => `\n${name}: ${value}`).join('')}
      </pre>
      {(error !== undefined || !isKept) && (
        <p class="muted">Headers and further limits are not known: nodes keep them for refusals, for an hour.</p>
      )}
    </section>
  )
}

/** Refusals are a 429, unless a ban has another status. */
function statusLine(status = 429): string {
  return status === 403 ? 'HTTP 403 Forbidden' : `HTTP ${status} Too Many Requests`
}

function isChanged(decision: Decision | undefined): decision is Decision {
  if (decision === undefined) return false
  return exceptionsOf(decision).length > 0 || candidatesOf(decision).length > 0
}

/** A ban from all rules is also listed for each rule. */
function exceptionsOf({ exceptions = [] }: Decision): readonly AppliedException[] {
  const general = new Set(exceptions.filter((one) => one.rule_id === null).map((one) => one.override_id))
  return exceptions.filter((one) => one.rule_id === null || !general.has(one.override_id ?? ''))
}

/** Rules whose new version decided. */
function candidatesOf({ limits }: Decision): readonly string[] {
  return [...new Set(limits.filter(({ variant }) => variant === 'candidate').map(({ rule_id: id }) => id))]
}

/** Overrides with their reasons, signals, the global factor, and rollouts. */
function ChangedBy({ decision }: { readonly decision: Decision }) {
  return (
    <ul class="why-changes">
      {exceptionsOf(decision).map((exception) => (
        <li key={JSON.stringify(exception)}>
          <Tag tone="warning">{exceptionText(exception)}</Tag>
          {exception.override_id !== undefined && <OverrideReason id={exception.override_id} />}
        </li>
      ))}
      {candidatesOf(decision).map((id) => (
        <li key={id}>
          <Tag tone="warning">rollout</Tag> the new version of {id} decided
        </li>
      ))}
    </ul>
  )
}

function OverrideReason({ id }: { readonly id: string }) {
  const { data, errorCode } = useApi<Override>(`/rate-limit/overrides/${encodeURIComponent(id)}`)
  if (errorCode === 'OVERRIDE_UNKNOWN') return <span class="muted"> Override {id} was removed since.</span>
  return data === undefined ? null : (
    <>
      {' '}
      {data.reason} <span class="muted">by {authorText(data)}</span>
    </>
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
  { title: 'Units', align: 'right', cell: ({ limit }) => <span class="num">{fullCount(limit)}</span> },
  { title: 'Left', align: 'right', cell: ({ remaining }) => <span class="num">{fullCount(remaining)}</span> },
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
