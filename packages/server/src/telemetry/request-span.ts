// Spans of one traced request: a server span, and one child per decision that waits for the store. Attributes are rule
// ids, results and routes, never keys of clients.

import { METHODS } from 'node:http'
import type { Span, Tracer } from '@opentelemetry/api'
import { type Decision, isPromise, type LimiterError, type MaybePromise, systemClock, wallClock } from 'sluice'
import type { Packages } from './packages.ts'
import { type TraceHeaders, type TraceParent, traceStateOf } from './trace-context.ts'

export type RequestSpan = {
  /** This span as the parent of spans in other services. */
  readonly asParent: TraceParent
  /** Sets the route once it is known. */
  setRoute(route: string): void
  /** Records the wait for the store as a child span, if the decision is not there yet. */
  storeCall(decided: MaybePromise<Decision>): MaybePromise<Decision>
  decided(decision: Decision): void
  /** Ends the span, once. Without a status, the client disconnected before the response. */
  end(status: number | undefined): void
}

const STORE_SPAN = 'sluice.store'
/** Name for methods outside of the registry, whose number is unbounded in HTTP/2 (semantic conventions). */
const OTHER_METHOD = '_OTHER'
const KNOWN_METHODS: ReadonlySet<string> = new Set(METHODS)

export class ServerSpan implements RequestSpan {
  readonly #api: Packages['api']
  readonly #tracer: Tracer
  readonly #method: string
  readonly #span: Span
  /** Time of day minus monotonic time, when the request began. */
  readonly #wallAheadUs = wallClock.nowUs() - systemClock.nowUs()
  #checks = 0
  #refused = 0
  #lastDecision: Decision | undefined
  #isOver = false

  /** `headers` are those of the request; `parent` is undefined for a new trace. */
  constructor(
    api: Packages['api'],
    tracer: Tracer,
    method: string,
    parent: TraceParent | undefined,
    headers: TraceHeaders,
  ) {
    this.#api = api
    this.#tracer = tracer
    this.#method = KNOWN_METHODS.has(method) ? method : OTHER_METHOD
    const { ROOT_CONTEXT, SpanKind } = api
    const context = parent === undefined ? ROOT_CONTEXT : contextOf(api, parent, traceStateOf(headers))
    const attributes = { 'http.request.method': this.#method }
    this.#span = tracer.startSpan(
      this.#method,
      { kind: SpanKind.SERVER, attributes, startTime: this.#nowMs() },
      context,
    )
  }

  get asParent(): TraceParent {
    const { traceId, spanId } = this.#span.spanContext()
    return { traceId, spanId, isSampled: true }
  }

  setRoute(route: string): void {
    this.#span.updateName(`${this.#method} ${route}`)
    this.#span.setAttribute('http.route', route)
  }

  storeCall(decided: MaybePromise<Decision>): MaybePromise<Decision> {
    if (!isPromise(decided)) return decided
    const { ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } = this.#api
    const context = trace.setSpan(ROOT_CONTEXT, this.#span)
    const child = this.#tracer.startSpan(STORE_SPAN, { kind: SpanKind.CLIENT, startTime: this.#nowMs() }, context)
    return decided.then(
      (decision) => {
        describe(child, decision)
        child.end(this.#nowMs())
        return decision
      },
      (error: Partial<LimiterError>) => {
        child.setStatus({ code: SpanStatusCode.ERROR })
        child.setAttribute('error.type', error.code ?? 'error')
        child.end(this.#nowMs())
        throw error
      },
    )
  }

  decided(decision: Decision): void {
    this.#checks += 1
    if (!decision.allowed) this.#refused += 1
    this.#lastDecision = decision
  }

  end(status: number | undefined): void {
    if (this.#isOver) return
    this.#isOver = true
    const span = this.#span
    if (this.#lastDecision !== undefined && this.#checks === 1) describe(span, this.#lastDecision)
    if (this.#checks > 1) span.setAttributes({ 'sluice.checks': this.#checks, 'sluice.refused': this.#refused })
    if (status === undefined) span.setAttribute('error.type', 'client_disconnected')
    else span.setAttribute('http.response.status_code', status)
    if (status !== undefined && status >= 500) span.setStatus({ code: this.#api.SpanStatusCode.ERROR })
    span.end(this.#nowMs())
  }

  /**
   * Time of day by one clock for all spans of the request. The SDK would read the clock anew for each span, and a child
   * could then end after its parent.
   */
  #nowMs(): number {
    return (systemClock.nowUs() + this.#wallAheadUs) / 1000
  }
}

function contextOf(
  { ROOT_CONTEXT, TraceFlags, createTraceState, trace }: Packages['api'],
  parent: TraceParent,
  state: string | undefined,
) {
  const { traceId, spanId } = parent
  const traceState = state === undefined ? {} : { traceState: createTraceState(state) }
  const traceFlags = TraceFlags.SAMPLED
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true, ...traceState })
}

function describe(span: Span, { ruleId, allowed, source, version }: Decision): void {
  span.setAttributes({
    ...(ruleId === null ? {} : { 'sluice.rule': ruleId }),
    'sluice.allowed': allowed,
    'sluice.source': source,
    'sluice.version': version,
  })
}
