// Headers that Envoy adds to responses. They describe the limit that decided.

import type { EnvoyHeaders } from '../settings/envoy-settings.ts'
import { type Header, NO_HEADERS, type Status } from './rate-limit-response.ts'

/** Names of the headers with the limit, the hits left and the seconds until it is full. */
export type HeaderNames = readonly [limit: string, remaining: string, reset: string]

const NAMES: Readonly<Record<'draft-03' | 'x-ratelimit', HeaderNames>> = {
  'draft-03': ['RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset'],
  'x-ratelimit': ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset'],
}

/** Headers of envoyproxy/ratelimit if the style is `plain`: without Retry-After. */
export type HeaderOptions = { readonly headers: EnvoyHeaders; readonly plainNames: HeaderNames }

/** `deciding`: the one of the statuses that decided. `retryAfterMs`: null if waiting does not help. */
export function responseHeaders(
  { headers: style, plainNames }: HeaderOptions,
  statuses: readonly Status[],
  deciding: Status | undefined,
  retryAfterMs: number | null,
): readonly Header[] {
  if (style === 'off') return NO_HEADERS
  const hasRetry = retryAfterMs && style !== 'plain'
  const retry = hasRetry ? [{ key: 'Retry-After', value: String(Math.ceil(retryAfterMs / 1000)) }] : NO_HEADERS
  if (deciding?.limit === undefined) return retry
  const { limit, remaining, resetSeconds } = deciding
  const [limitName, remainingName, resetName] = style === 'plain' ? plainNames : NAMES[style]
  const policies = style === 'draft-03' ? policiesOf(statuses) : ''
  return [
    { key: limitName, value: `${limit.requestsPerUnit}${policies}` },
    { key: remainingName, value: String(remaining) },
    ...(resetSeconds === undefined ? NO_HEADERS : [{ key: resetName, value: String(resetSeconds) }]),
    ...retry,
  ]
}

/** `, 10;w=60;name="per-ip"` for each limit. Names are quoted; a name with a quote is left out. */
function policiesOf(statuses: readonly Status[]): string {
  let text = ''
  for (const { limit } of statuses) {
    if (limit === undefined) continue
    const name = limit.name === '' || /["\\]|[^\x20-\x7e]/.test(limit.name) ? '' : `;name="${limit.name}"`
    text += `, ${limit.requestsPerUnit};w=${limit.windowSeconds}${name}`
  }
  return text
}
