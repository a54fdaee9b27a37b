// Host names under which browsers may use the dashboard. Protects against DNS rebinding: a page of another site can
// make its own name resolve to this service, but then the Host header carries that name. Addresses cannot be rebound.

import type { IncomingHttpHeaders } from 'node:http'
import { isIP } from 'node:net'

export class AllowedHosts {
  readonly #names: ReadonlySet<string>

  /** `names`: host names in any case, without ports. */
  constructor(names: readonly string[]) {
    this.#names = new Set(['localhost', ...names.map((name) => name.toLowerCase())])
  }

  /** Whether the Host header is an address or an allowed name. */
  allows(host: string | undefined): boolean {
    const name = hostName(host)
    return name !== undefined && (isIP(name) !== 0 || this.#names.has(name))
  }

  /**
   * Whether the request comes from a page of this dashboard, or from no page at all. Browsers set both headers and
   * pages cannot change them. A proxy may rewrite Host, so an origin with an allowed name passes too.
   */
  isSameOrigin({ host, origin, 'sec-fetch-site': site }: IncomingHttpHeaders): boolean {
    if (site !== undefined && site !== 'same-origin' && site !== 'none') return false
    if (origin === undefined) return true
    if (!URL.canParse(origin)) return false // also "null", the origin of a sandboxed page
    const { host: originHost, hostname } = new URL(origin)
    return originHost === host?.toLowerCase() || this.#names.has(hostname)
  }
}

/** Name or address in a Host header, without port and brackets. */
function hostName(host: string | undefined): string | undefined {
  const [, address, name] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/i.exec(host ?? '') ?? []
  return (address ?? name)?.toLowerCase().replace(/\.$/, '')
}
