// Builds the subject of a request from the request itself, or from the headers of a trusted proxy.

import { andThen, type Limiter, type MaybePromise, type Subject } from 'sluice'
import { type HttpRequest, headerFacts, type Proxies, subjectFromRequest } from 'sluice/http'
import { type Credentials, type Facts, headerLines, type Identify } from './identity.ts'

export type RequestLine = { readonly method: string; readonly url: string; readonly peer: string | undefined }

export type ReadSubject = (line: RequestLine, credentials: Credentials) => MaybePromise<Subject>

/** `bypassHeader`: lower-case name of the header with a bypass token; `off`: none is read. */
export function createReadSubject(
  limiter: Limiter,
  identify: Identify,
  proxies: Proxies,
  bypassHeader: string,
): ReadSubject {
  const attributesOf = headerFacts(limiter)
  return ({ method, url, peer }, credentials) => {
    const header = (name: string) => headerLines(credentials.rawHeaders, name).join(', ') || undefined
    const http: HttpRequest = { method, url, peer, header }
    const base = subjectFromRequest(http, proxies)
    const attributes = attributesOf(http)
    const bypassToken = bypassHeader === 'off' ? undefined : header(bypassHeader)
    return andThen(identify(credentials), (facts) => withFacts(base, attributes, facts, bypassToken))
  }
}

/** Field by field, because spreading two objects is slow: docs/decisions/0018-v8-hints.md. */
function withFacts(
  { ip, method, path }: Subject,
  attributes: Subject['attributes'],
  facts: Facts,
  bypassToken: string | undefined,
): Subject {
  const { user, apiKey, tenant, plan } = facts
  return { ip, user, apiKey, tenant, plan, method, path, attributes, bypassToken }
}
