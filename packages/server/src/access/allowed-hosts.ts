// Host names under which browsers may use the dashboard. Protects against DNS rebinding: a page of another site can
// make its own name resolve to this service, but then the Host header carries that name. Addresses cannot be rebound.

import type { IncomingHttpHeaders } from 'node:http'
import { isIP } from 'node:net'
import { type Cidr, matchesAny, parseAddress } from 'sluice/http'

export class AllowedHosts {
  readonly #names: ReadonlySet<string>
  readonly #publicNames: ReadonlySet<string>
  readonly #trustedProxies: readonly Cidr[]

  /**
   * Host names in any case, without ports. `own`: under which the node listens. `publicNames`: under which browsers
   * reach it through a proxy, on the default port of the scheme.
   */
  constructor(publicNames: readonly string[], own: readonly string[] = [], trustedProxies: readonly Cidr[] = []) {
    this.#publicNames = new Set(publicNames.map((name) => name.toLowerCase()))
    this.#names = new Set(['localhost', ...this.#publicNames, ...own.map((name) => name.toLowerCase())])
    this.#trustedProxies = trustedProxies
  }

  /** Whether the Host header is an address or an allowed name. */
  allows(host: string | undefined): boolean {
    const name = hostName(host)
    return name !== undefined && (isIP(name) !== 0 || this.#names.has(name))
  }

  /**
   * Whether the request comes from a page of this dashboard, or from no page at all. Browsers set both headers and
   * pages cannot change them. Scheme, host and port of the origin are compared with those of the request: as the node
   * received it, as a trusted proxy forwarded it, or under a public name.
   */
  isSameOrigin({ headers, socket }: RequestFacts): boolean {
    const { host = '', origin, 'sec-fetch-site': site } = headers
    if (site !== undefined && site !== 'same-origin' && site !== 'none') return false
    if (origin === undefined) return true
    const own = originOf(origin)
    if (own === undefined || own.origin !== origin) return false // also "null", the origin of a sandboxed page
    const hasTls = socket.encrypted === true
    const candidates = [`${hasTls ? 'https' : 'http'}://${host}`]
    // The browser has compared the origins itself. It sees https where a proxy terminates TLS.
    if (site === 'same-origin') candidates.push(`https://${host}`)
    if (this.#isTrusted(socket.remoteAddress)) {
      const { 'x-forwarded-proto': scheme, 'x-forwarded-host': forwardedHost = host } = headers
      candidates.push(`${String(scheme)}://${String(forwardedHost)}`)
    }
    if (candidates.some((candidate) => originOf(candidate)?.origin === origin)) return true
    return this.#publicNames.has(own.host) && (own.protocol === 'https:' || !hasTls)
  }

  #isTrusted(remoteAddress = ''): boolean {
    const address = parseAddress(remoteAddress)
    return address !== undefined && matchesAny(this.#trustedProxies, address)
  }
}

/** Parts of a request that decide about its origin. */
export type RequestFacts = {
  readonly headers: IncomingHttpHeaders
  readonly socket: { readonly remoteAddress?: string | undefined; readonly encrypted?: boolean }
}

/** Undefined for anything but an origin of HTTP. */
function originOf(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isPlain = url !== undefined && url.username === '' && url.pathname === '/' && url.search === ''
  return isPlain && (url.protocol === 'http:' || url.protocol === 'https:') ? url : undefined
}

/** Name or address in a Host header, without port and brackets. */
function hostName(host: string | undefined): string | undefined {
  const [, address, name] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/i.exec(host ?? '') ?? []
  return (address ?? name)?.toLowerCase().replace(/\.$/, '')
}
