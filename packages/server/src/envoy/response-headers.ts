// Headers that Envoy adds to responses. They describe the limit that decided.

import type { EnvoyHeaders } from '../settings/envoy-settings.ts'
import { type Header, NO_HEADERS, type Status } from './rate-limit-response.ts'

const PREFIXES: Readonly<Record<Exclude<EnvoyHeaders, 'off'>, string>> = {
  'draft-03': 'RateLimit',
  'x-ratelimit': 'X-RateLimit',
}

/** `deciding`: the one of the statuses that decided. `retryAfterMs`: null if waiting does not help. */
export function responseHeaders(
  style: EnvoyHeaders,
  statuses: readonly Status[],
  deciding: Status | undefined,
  retryAfterMs: number | null,
): readonly Header[] {
  if (style === 'off') return NO_HEADERS
  const retry = retryAfterMs ? [{ key: 'Retry-After', value: String(Math.ceil(retryAfterMs / 1000)) }] : NO_HEADERS
  if (deciding?.limit === undefined) return retry
  const { limit, remaining, resetSeconds } = deciding
  const prefix = PREFIXES[style]
  const policies = style === 'draft-03' ? policiesOf(statuses) : ''
  return [
    { key: `${prefix}-Limit`, value: `${limit.requestsPerUnit}${policies}` },
    { key: `${prefix}-Remaining`, value: String(remaining) },
    ...(resetSeconds === undefined ? NO_HEADERS : [{ key: `${prefix}-Reset`, value: String(resetSeconds) }]),
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
