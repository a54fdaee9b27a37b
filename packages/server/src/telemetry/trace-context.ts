// Reads and writes the W3C headers `traceparent` and `tracestate`. An invalid header starts a new trace, and its
// `tracestate` is dropped with it (W3C Trace Context, 3.2 and 4.2).

export type TraceParent = { readonly traceId: string; readonly spanId: string; readonly isSampled: boolean }

/** Headers of a request, joined by Node.js if they were repeated. */
export type TraceHeaders = Readonly<NodeJS.Dict<string | string[]>>

const TRACEPARENT = 'traceparent'
const TRACESTATE = 'tracestate'
const FORMAT = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/
const ZEROS = /^0+$/
const SAMPLED = 1

export function traceParentOf({ [TRACEPARENT]: sent }: TraceHeaders): TraceParent | undefined {
  return typeof sent === 'string' ? parse(sent) : undefined
}

export function traceStateOf({ [TRACESTATE]: sent }: TraceHeaders): string | undefined {
  return sent?.toString()
}

/** Repeated headers are invalid: Node.js joins them with a comma. */
function parse(text: string): TraceParent | undefined {
  const [whole, version, traceId = '', spanId = '', flags = '', more] = FORMAT.exec(text.trim()) ?? []
  if (whole === undefined || version === 'ff' || (version === '00' && more !== undefined)) return undefined
  if (ZEROS.test(traceId) || ZEROS.test(spanId)) return undefined
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED }
}

/** Replaces the trace headers in a list of alternating names and values; `tracestate` stays if the trace goes on. */
export function withTraceParent(headers: readonly string[], parent: TraceParent, continues: boolean): string[] {
  const list: string[] = []
  for (let at = 0; at < headers.length; at += 2) {
    const name = (headers[at] ?? '').toLowerCase()
    if (name === TRACEPARENT || (name === TRACESTATE && !continues)) continue
    list.push(headers[at] ?? '', headers[at + 1] ?? '')
  }
  const { traceId, spanId, isSampled } = parent
  list.push(TRACEPARENT, `00-${traceId}-${spanId}-${isSampled ? '01' : '00'}`)
  return list
}
