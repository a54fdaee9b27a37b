// A request as it came over the wire, or as a proxy tells of it → the subject that the limiter decides about.

import type { Limiter, Subject } from 'sluice'
import { type HttpRequest, headerFacts, type Proxies, subjectOf } from 'sluice/http'
import { type Credentials, type Facts, headerLines, type Identify } from './identity.ts'

export type RequestLine = { readonly method: string; readonly url: string; readonly peer: string | undefined }

export type ReadSubject = (line: RequestLine, credentials: Credentials) => Subject | Promise<Subject>

export function createReadSubject(limiter: Limiter, identify: Identify, proxies: Proxies): ReadSubject {
  const attributesOf = headerFacts(limiter)
  return ({ method, url, peer }, credentials) => {
    const header = (name: string) => headerLines(credentials.rawHeaders, name).join(', ') || undefined
    const http: HttpRequest = { method, url, peer, header }
    const told = subjectOf(http, proxies)
    const attributes = attributesOf(http)
    const facts = identify(credentials)
    if (facts instanceof Promise) return facts.then((later) => withFacts(told, attributes, later))
    return withFacts(told, attributes, facts)
  }
}

/** Written out: this is the hot path, and spreading is not. */
function withFacts({ ip, method, path }: Subject, attributes: Subject['attributes'], facts: Facts): Subject {
  const { user, apiKey, tenant, plan } = facts
  return { ip, user, apiKey, tenant, plan, method, path, attributes }
}
