// Chooses the upstream of a request by host and canonical path. Rules match the same canonical path, so no spelling
// of a path can bypass the rules of an upstream.

import { canonicalPath } from 'sluice/http'

export type Route = {
  /** Lower case, without a port; undefined matches any host. */
  readonly host: string | undefined
  /** Canonical; `/` matches every path. */
  readonly prefix: string
  readonly upstream: URL
}

export type ResolvedRoute<Upstream> = Omit<Route, 'upstream'> & { readonly upstream: Upstream }

export type FindUpstream<Upstream> = (target: { readonly host: string; readonly path: string }) => Upstream | undefined

/** Routes with a host take precedence, then the longest prefix. `fallback` gets all other requests. */
export function createFindUpstream<Upstream>(
  routes: readonly ResolvedRoute<Upstream>[],
  fallback: Upstream | undefined,
): FindUpstream<Upstream> {
  if (routes.length === 0) return () => fallback
  const sorted = [...routes].sort((a, b) => {
    return Number(b.host !== undefined) - Number(a.host !== undefined) || b.prefix.length - a.prefix.length
  })
  return (target) => {
    const name = hostName(target.host)
    const path = canonicalPath(target.path)
    const found = sorted.find(({ host, prefix }) => (host === undefined || host === name) && isUnder(path, prefix))
    return found?.upstream ?? fallback
  }
}

/** `/api` contains `/api` and `/api/x`, but not `/apix`. */
function isUnder(path: string, prefix: string): boolean {
  return prefix === '/' || path === prefix || path.startsWith(`${prefix}/`)
}

/** Without port and without the trailing dot of a fully qualified name. */
function hostName(host: string): string {
  return host.replace(/\.?(?::\d*)?$/, '').toLowerCase()
}

export function readUpstream(text: string): URL | undefined {
  if (!URL.canParse(text)) return undefined
  const url = new URL(text)
  const isPlain = url.pathname === '/' && !/[?#@]/.test(text) && !text.endsWith('//')
  return isPlain && /^https?:$/.test(url.protocol) ? url : undefined
}

/** `/api=http://a example.org/=http://b`, separated by spaces or commas. */
export function readRoutes(text: string): readonly Route[] | undefined {
  const routes = text.split(/[\s,]+/).map(readRoute)
  return routes.every((route) => route !== undefined) ? routes : undefined
}

function readRoute(text: string): Route | undefined {
  const [, host, path, url] = /^([\w.-]*)(\/[^=?#]*)=(.+)$/.exec(text) ?? []
  const upstream = readUpstream(url ?? '')
  if (path === undefined || upstream === undefined) return undefined
  return { host: host?.toLowerCase() || undefined, prefix: canonicalPath(path), upstream }
}
