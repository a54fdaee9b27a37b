// An OTLP/HTTP receiver in this process: it keeps what it is sent, and answers with a chosen status or never. The real
// OpenTelemetry collector runs in `npm run soak -- otlp`, because building it takes minutes.

import type { IncomingHttpHeaders } from 'node:http'
import { json } from 'node:stream/consumers'
import { startUpstream } from './gateway/setup.ts'

type Value = { readonly stringValue?: string; readonly boolValue?: boolean; readonly intValue?: number }
type KeyValues = readonly { readonly key: string; readonly value: Value }[]

export type SentSpan = {
  readonly name: string
  readonly kind: number
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly traceState?: string
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly status: { readonly code: number }
  readonly attributes: Readonly<Record<string, unknown>>
}

type Point = {
  readonly attributes: Readonly<Record<string, unknown>>
  readonly asDouble?: number
  readonly count?: string
  readonly sum?: number
  readonly explicitBounds?: readonly number[]
  readonly bucketCounts?: readonly string[]
  readonly startTimeUnixNano: string
  readonly timeUnixNano: string
}

export type SentMetric = { readonly name: string; readonly kind: string; readonly points: readonly Point[] }

export type Receiver = {
  readonly url: string
  readonly spans: SentSpan[]
  /** Metrics of each export. */
  readonly exports: SentMetric[][]
  readonly resources: Readonly<Record<string, unknown>>[]
  readonly requests: { readonly url: string; readonly headers: IncomingHttpHeaders }[]
  /** Status of the next answers. */
  status: number
}

export async function startReceiver(): Promise<Receiver> {
  const receiver: Receiver & { url: string } = {
    ...{ url: '', spans: [], exports: [], resources: [], requests: [], status: 200 },
  }
  const { url } = await startUpstream(async (request, response) => {
    const body = (await json(request)) as Body
    receiver.requests.push({ url: request.url ?? '', headers: request.headers })
    if (receiver.status === 200) keep(receiver, body)
    response.writeHead(receiver.status, { 'content-type': 'application/json' }).end('{}')
  })
  receiver.url = url.origin
  return receiver
}

/** Accepts connections and never answers. */
export async function startSilentReceiver(): Promise<string> {
  const { url } = await startUpstream(() => {})
  return url.origin
}

/** URL of a port on which no server listens. */
export async function closedPort(): Promise<string> {
  const { url, stop } = await startUpstream(() => {})
  await stop()
  return url.origin
}

type Resource = { readonly attributes: KeyValues }
type RawSpan = Omit<SentSpan, 'attributes'> & { readonly attributes: KeyValues }
type RawPoint = Omit<Point, 'attributes'> & { readonly attributes: KeyValues }
type RawMetric = { readonly name: string } & Readonly<Record<string, unknown>>
type Body = {
  readonly resourceSpans?: { resource: Resource; scopeSpans: { spans: RawSpan[] }[] }[]
  readonly resourceMetrics?: { resource: Resource; scopeMetrics: { metrics: RawMetric[] }[] }[]
}

function keep({ spans, exports, resources }: Receiver, { resourceSpans = [], resourceMetrics = [] }: Body): void {
  for (const { resource, scopeSpans } of resourceSpans) {
    resources.push(plain(resource.attributes))
    for (const scope of scopeSpans)
      spans.push(...scope.spans.map((span) => ({ ...span, attributes: plain(span.attributes) })))
  }
  for (const { resource, scopeMetrics } of resourceMetrics) {
    resources.push(plain(resource.attributes))
    exports.push(scopeMetrics.flatMap(({ metrics }) => metrics.map(plainMetric)))
  }
}

function plainMetric({ name, ...rest }: RawMetric): SentMetric {
  const kind = ['sum', 'gauge', 'histogram'].find((one) => one in rest) ?? 'unknown'
  const { dataPoints } = rest[kind] as { dataPoints: RawPoint[] }
  return { name, kind, points: dataPoints.map((point) => ({ ...point, attributes: plain(point.attributes) })) }
}

function plain(attributes: KeyValues): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))
}
