// View state in the URL: every filter, range and selection is a query parameter, so that a link reproduces the page.

import { useLocation } from 'preact-iso'
import { nowMs } from './clock.ts'

export type Query = Readonly<Record<string, string>>
/** undefined and '' remove a parameter. */
export type QueryPatch = Readonly<Record<string, string | undefined>>

/** Parameters that stay when the user goes to another page. */
const KEPT = ['range', 'from', 'to'] as const

/** Query of the page, and a function that changes some parameters without a new history entry. */
export function useQuery(): readonly [Query, (patch: QueryPatch) => void] {
  const { path, query, route } = useLocation()
  return [query, (patch) => route(urlOf(path, { ...query, ...patch }), true)]
}

export function urlOf(path: string, query: QueryPatch = {}): string {
  const params = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== '') params.set(name, value)
  const text = params.toString()
  return text === '' ? path : `${path}?${text}`
}

/** Link to another page that keeps the time range. */
export function usePageUrl(): (path: string, query?: QueryPatch) => string {
  const { query } = useLocation()
  const kept = Object.fromEntries(KEPT.map((name) => [name, query[name]]))
  return (path, more = {}) => urlOf(path, { ...kept, ...more })
}

export type RangeName = '1m' | '5m' | '15m' | '1h' | '6h' | '24h' | '7d' | '30d'

/** Ranges that the picker offers, with their length in seconds. */
export const RANGES: Readonly<Record<RangeName, { readonly label: string; readonly seconds: number }>> = {
  '1m': { label: '1 minute', seconds: 60 },
  '5m': { label: '5 minutes', seconds: 300 },
  '15m': { label: '15 minutes', seconds: 900 },
  '1h': { label: '1 hour', seconds: 3600 },
  '6h': { label: '6 hours', seconds: 21_600 },
  '24h': { label: '24 hours', seconds: 86_400 },
  '7d': { label: '7 days', seconds: 604_800 },
  '30d': { label: '30 days', seconds: 2_592_000 },
}
const DEFAULT_RANGE: RangeName = '15m'

export type Range = {
  /** Undefined: a fixed range, from `from` to `to` in the URL. */
  readonly name: RangeName | undefined
  readonly seconds: number
  /** Parameters for the API: `from`, and `to` for a fixed range. */
  readonly params: { readonly from: string; readonly to?: string }
  fromMs(): number
  toMs(): number
}

/** Time range of the page, from its URL. A relative range ends now. */
export function useRange(): Range {
  const [query] = useQuery()
  return rangeOf(query)
}

export function rangeOf({ range, from, to }: Query): Range {
  const [fromMs, toMs] = [Date.parse(from ?? ''), Date.parse(to ?? '')]
  if (fromMs < toMs) {
    const params = { from: new Date(fromMs).toISOString(), to: new Date(toMs).toISOString() }
    return { name: undefined, seconds: (toMs - fromMs) / 1000, params, fromMs: () => fromMs, toMs: () => toMs }
  }
  const name = isRangeName(range) ? range : DEFAULT_RANGE
  const { seconds } = RANGES[name]
  return { name, seconds, params: { from: name }, fromMs: () => nowMs() - seconds * 1000, toMs: nowMs }
}

function isRangeName(text: string | undefined): text is RangeName {
  return text !== undefined && Object.hasOwn(RANGES, text)
}
