// A request independent of the framework, and the subject derived from it.

import type { Cidr } from '../canonical/cidr.ts'
import { pathEnd } from '../canonical/path.ts'
import type { Subject } from '../subject.ts'
import { clientAddress } from './client-address.ts'

export type HttpRequest = {
  readonly method: string
  /** The request target or the whole URL. */
  readonly url: string
  /** The address at the other end of the connection. */
  readonly peer: string | undefined
  /** Value of a header by its lower-case name; several lines are joined by commas. */
  readonly header: (name: string) => string | undefined
}

/** The trusted proxies, and the header in which they report the client. */
export type Proxies = { readonly trusted: readonly Cidr[]; readonly header: 'x-forwarded-for' | 'forwarded' }

export const NO_PROXIES: Proxies = { trusted: [], header: 'x-forwarded-for' }

/** Default header of bypass tokens. */
export const BYPASS_HEADER = 'x-sluice-bypass'

const SLASH = 47

/** Address, method and path. Only the application knows the user. */
export function subjectFromRequest(request: HttpRequest, proxies: Proxies = NO_PROXIES): Subject {
  return { ip: addressOf(request, proxies), method: request.method, path: pathOf(request.url) }
}

function addressOf({ peer, header }: HttpRequest, proxies: Proxies): string | undefined {
  if (proxies.trusted.length === 0) return peer
  const value = header(proxies.header)
  const connection = proxies.header === 'forwarded' ? { peer, forwarded: value } : { peer, forwardedFor: value }
  return clientAddress(connection, proxies.trusted)
}

/** The raw path, so that rules can try every reading; without the query, which would make every path unique. */
function pathOf(url: string): string {
  return url.charCodeAt(0) === SLASH ? url.slice(0, pathEnd(url, 0)) : url
}
