// Builds the subject of a request from the request itself, or from what a proxy reports about it.

import { andThen, type Limiter, type MaybePromise, type Subject } from 'sluice'
import { type HttpRequest, headerFacts, type Proxies, subjectFromRequest } from 'sluice/http'
import { type Credentials, type Facts, headerLines, type Identify } from './identity.ts'

export type RequestLine = { readonly method: string; readonly url: string; readonly peer: string | undefined }

export type ReadSubject = (line: RequestLine, credentials: Credentials) => MaybePromise<Subject>

export function createReadSubject(limiter: Limiter, identify: Identify, proxies: Proxies): ReadSubject {
  const attributesOf = headerFacts(limiter)
  return ({ method, url, peer }, credentials) => {
    const header = (name: string) => headerLines(credentials.rawHeaders, name).join(', ') || undefined
    const http: HttpRequest = { method, url, peer, header }
    const base = subjectFromRequest(http, proxies)
    const attributes = attributesOf(http)
    return andThen(identify(credentials), (facts) => withFacts(base, attributes, facts))
  }
}

/** Field by field: spreading is slower on this hot path. */
function withFacts({ ip, method, path }: Subject, attributes: Subject['attributes'], facts: Facts): Subject {
  const { user, apiKey, tenant, plan } = facts
  return { ip, user, apiKey, tenant, plan, method, path, attributes }
}
