// Headers that Envoy adds to responses, from the statuses of a request. They describe the limit that decided: an
// exceeded one, else the one with the fewest hits left.

import type { EnvoyHeaders } from '../settings/envoy-settings.ts'
import { CODE, type Header, NO_HEADERS, type Status } from './rate-limit-response.ts'

const PREFIXES: Readonly<Record<Exclude<EnvoyHeaders, 'off'>, string>> = {
  'draft-03': 'RateLimit',
  'x-ratelimit': 'X-RateLimit',
}

/** `retrySeconds`: undefined if the request is allowed, or if waiting does not help. */
export function responseHeaders(
  style: EnvoyHeaders,
  statuses: readonly Status[],
  allowed: boolean,
  retrySeconds: number | undefined,
): readonly Header[] {
  if (style === 'off') return NO_HEADERS
  const deciding = decidingStatus(statuses, allowed)
  const retry = retrySeconds === undefined ? NO_HEADERS : [{ key: 'Retry-After', value: String(retrySeconds) }]
  if (deciding?.limit === undefined) return retry
  const { limit, remaining } = deciding
  const reset = allowed ? deciding.resetSeconds : retrySeconds
  const prefix = PREFIXES[style]
  const policies = style === 'draft-03' ? policiesOf(statuses) : ''
  return [
    { key: `${prefix}-Limit`, value: `${limit.requestsPerUnit}${policies}` },
    { key: `${prefix}-Remaining`, value: String(remaining) },
    ...(reset === undefined ? NO_HEADERS : [{ key: `${prefix}-Reset`, value: String(reset) }]),
    ...retry,
  ]
}

/** The limit that the headers describe. */
export function decidingStatus(statuses: readonly Status[], allowed: boolean): Status | undefined {
  let deciding: Status | undefined
  for (const status of statuses) {
    if (status.limit === undefined || (!allowed && status.code !== CODE.overLimit)) continue
    if (deciding === undefined || status.remaining < deciding.remaining) deciding = status
  }
  return deciding
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
