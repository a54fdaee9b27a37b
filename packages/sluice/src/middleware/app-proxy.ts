// Whether a framework was told to trust proxies. The limiter has an option of its own, `trustProxy`, because `true` and
// hop counts, which frameworks accept, can be spoofed. Where only the framework is told, a warning says so.

/** Express, and NestJS on it. Connect has no `app`. */
export function expressTrusts({ app }: { readonly app?: { get?: unknown } | undefined }): boolean {
  return typeof app?.get === 'function' && Boolean(app.get('trust proxy'))
}

/** Fastify, whose requests have `ips` exactly when it trusts proxies. */
export function fastifyTrusts(request: object): boolean {
  return 'ips' in request
}

export function koaTrusts({ app }: { readonly app?: { readonly proxy?: unknown } | undefined }): boolean {
  return app?.proxy === true
}
