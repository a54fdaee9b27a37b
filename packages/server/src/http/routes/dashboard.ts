// The dashboard: static files under / for browsers, with a strict content security policy. Clients that do not accept
// HTML get JSON from the same paths.

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { AllowedHosts } from '../../access/allowed-hosts.ts'
import { type DashboardFile, INDEX } from '../../dashboard/dashboard-files.ts'
import { requireDashboardHost } from './session.ts'

export type DashboardDeps = {
  /** Undefined: the dashboard is not built. */
  readonly files: ReadonlyMap<string, DashboardFile> | undefined
  readonly hosts: AllowedHosts
}

/** Sends the page if a browser requests one. Returns whether it did. */
export type SendPage = (request: FastifyRequest, reply: FastifyReply) => boolean

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "worker-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ')
const SECURITY_HEADERS = {
  'content-security-policy': POLICY,
  'x-frame-options': 'DENY',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
}
const CACHED = 'public, max-age=31536000, immutable'
const REVALIDATED = 'no-cache'
const NOT_BUILT = 'The dashboard is not built: run npm run build.\n'

/** Adds the files with fixed paths; pages are sent by the returned function. */
export function dashboardRoutes(app: FastifyInstance, { files, hosts }: DashboardDeps): SendPage {
  const options = { schema: { hide: true }, config: { access: 'open' as const } }
  for (const [path, file] of files ?? []) {
    if (path !== INDEX) app.get(path, options, (request, reply) => sendFile(request, reply, file))
  }
  return (request, reply) => {
    if (!acceptsHtml(request) || isApi(request.url)) return false
    requireDashboardHost(request, hosts)
    const page = files?.get(INDEX)
    if (page === undefined) reply.code(503).type('text/plain; charset=utf-8').send(NOT_BUILT)
    else sendFile(request, reply.header('vary', 'accept, accept-encoding'), page)
    return true
  }
}

function acceptsHtml({ method, headers: { accept } }: FastifyRequest): boolean {
  return (method === 'GET' || method === 'HEAD') && accept?.includes('text/html') === true
}

function isApi(url: string): boolean {
  return /^\/(api|assets)\//.test(url)
}

function sendFile(request: FastifyRequest, reply: FastifyReply, { type, etag, isImmutable, bodies }: DashboardFile) {
  reply.headers(SECURITY_HEADERS).header('etag', etag)
  reply.header('cache-control', isImmutable ? CACHED : REVALIDATED)
  if (!reply.hasHeader('vary')) reply.header('vary', 'accept-encoding')
  if (request.headers['if-none-match'] === etag) return reply.code(304).send()
  const accepted = request.headers['accept-encoding'] ?? ''
  const encoding = (['br', 'gzip'] as const).find((one) => bodies[one] !== undefined && accepted.includes(one))
  if (encoding !== undefined) reply.header('content-encoding', encoding)
  return reply.type(type).send(bodies[encoding ?? 'identity'])
}
