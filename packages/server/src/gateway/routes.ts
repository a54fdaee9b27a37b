// Which service a request goes to. Routes look at the canonical path, as rules do: no way of writing a path reaches
// another service than its rules are for.

import { canonicalPath } from 'sluice/http'

export type Route = {
  /** In lower case, without a port; undefined: any. */
  readonly host: string | undefined
  /** Canonical; `/` for every path. */
  readonly prefix: string
  readonly upstream: URL
}

export type FindUpstream = (host: string, path: string) => URL | undefined

/** A host goes before none, then the longest prefix. `fallback` is for everything else. */
export function createFindUpstream(routes: readonly Route[], fallback: URL | undefined): FindUpstream {
  const inOrder = [...routes].sort((a, b) => {
    return Number(b.host !== undefined) - Number(a.host !== undefined) || b.prefix.length - a.prefix.length
  })
  return (host, path) => {
    const name = hostName(host)
    const fits = (route: Route) => (route.host === undefined || route.host === name) && isUnder(path, route.prefix)
    return inOrder.find(fits)?.upstream ?? fallback
  }
}

/** `/api` holds `/api` and `/api/x`, and not `/apix`. */
function isUnder(path: string, prefix: string): boolean {
  return prefix === '/' || path === prefix || path.startsWith(`${prefix}/`)
}

function hostName(host: string): string {
  return host.replace(/:\d*$/, '').toLowerCase()
}

export function readUpstream(text: string): URL | undefined {
  if (!URL.canParse(text)) return undefined
  const url = new URL(text)
  const isPlain = url.pathname === '/' && !/[?#@]/.test(text) && !text.endsWith('//')
  return isPlain && /^https?:$/.test(url.protocol) ? url : undefined
}

/** `/api=http://a,example.org/=http://b` */
export function readRoutes(text: string): readonly Route[] | undefined {
  const routes = text.split(',').map((one) => readRoute(one.trim()))
  return routes.every((route) => route !== undefined) ? routes : undefined
}

function readRoute(text: string): Route | undefined {
  const [, host, path, url] = /^([\w.-]*)(\/[^=?#]*)=(.+)$/.exec(text) ?? []
  const upstream = readUpstream(url ?? '')
  if (path === undefined || upstream === undefined) return undefined
  return { host: host?.toLowerCase() || undefined, prefix: canonicalPath(path), upstream }
}
