// A request as it came over the wire, or as a proxy tells of it → the subject that the limiter decides about.

import type { Limiter, Subject } from 'sluice'
import { type HttpRequest, headerFacts, type Proxies, subjectOf } from 'sluice/http'
import { type Credentials, type Facts, headerLines, type Identify } from './identity.ts'

export type RequestLine = { readonly method: string; readonly url: string; readonly peer: string | undefined }

export type ReadSubject = (line: RequestLine, credentials: Credentials) => Subject | Promise<Subject>

export function createReadSubject(limiter: Limiter, identify: Identify, proxies: Proxies): ReadSubject {
  const attributesOf = headerFacts(limiter)
  return (line, credentials) => {
    const header = (name: string) => headerLines(credentials.rawHeaders, name).join(', ') || undefined
    const http: HttpRequest = { ...line, header }
    const told = { ...subjectOf(http, proxies), attributes: attributesOf(http) }
    const facts = identify(credentials)
    return facts instanceof Promise ? facts.then((later) => withFacts(told, later)) : withFacts(told, facts)
  }
}

function withFacts(told: Subject, facts: Facts): Subject {
  return { ...told, ...facts }
}
