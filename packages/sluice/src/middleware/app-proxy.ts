// Detects whether a framework is configured to trust proxies. The limiter has its own option, `trustProxy`, because
// `true` and hop counts, which frameworks accept, can be spoofed. If only the framework trusts proxies, a
// warning says so.

/** Express, and NestJS on Express. Connect has no `app`. */
export function expressTrustsProxies({ app }: { readonly app?: { get?: unknown } | undefined }): boolean {
  return typeof app?.get === 'function' && Boolean(app.get('trust proxy'))
}

/** Fastify, whose requests have `ips` exactly when it trusts proxies. */
export function fastifyTrustsProxies(request: object): boolean {
  return 'ips' in request
}

export function koaTrustsProxies({ app }: { readonly app?: { readonly proxy?: unknown } | undefined }): boolean {
  return app?.proxy === true
}
