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

export type Place<Upstream> = Omit<Route, 'upstream'> & { readonly upstream: Upstream }

export type FindUpstream<Upstream> = (target: { readonly host: string; readonly path: string }) => Upstream | undefined

/** A host goes before none, then the longest prefix. `fallback` is for everything else. */
export function createFindUpstream<Upstream>(
  routes: readonly Place<Upstream>[],
  fallback: Upstream | undefined,
): FindUpstream<Upstream> {
  if (routes.length === 0) return () => fallback
  const inOrder = [...routes].sort((a, b) => {
    return Number(b.host !== undefined) - Number(a.host !== undefined) || b.prefix.length - a.prefix.length
  })
  return (target) => {
    const name = hostName(target.host)
    const path = canonicalPath(target.path)
    const found = inOrder.find(({ host, prefix }) => (host === undefined || host === name) && isUnder(path, prefix))
    return found?.upstream ?? fallback
  }
}

/** `/api` holds `/api` and `/api/x`, and not `/apix`. */
function isUnder(path: string, prefix: string): boolean {
  return prefix === '/' || path === prefix || path.startsWith(`${prefix}/`)
}

/** Without a port, and without the dot that says that a name is complete. */
function hostName(host: string): string {
  return host.replace(/\.?(?::\d*)?$/, '').toLowerCase()
}

export function readUpstream(text: string): URL | undefined {
  if (!URL.canParse(text)) return undefined
  const url = new URL(text)
  const isPlain = url.pathname === '/' && !/[?#@]/.test(text) && !text.endsWith('//')
  return isPlain && /^https?:$/.test(url.protocol) ? url : undefined
}

/** `/api=http://a example.org/=http://b`, with spaces or commas */
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
