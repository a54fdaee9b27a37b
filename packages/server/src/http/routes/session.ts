// /api/v1/session: signs a browser in and out of the dashboard. GET returns 200 even while signed out, so that a page
// can check without an error in the console.

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { AllowedHosts } from '../../access/allowed-hosts.ts'
import { type Authenticator, unauthorized } from '../../access/authenticator.ts'
import { roleAllows } from '../../access/roles.ts'
import { type Session, sealSession } from '../../access/session.ts'
import { setSessionCookie } from '../../access/session-cookie.ts'
import { VERSION } from '../../package-facts.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { answers, type Schema, text } from '../bodies/schemas.ts'

export const SESSION_PATH = '/api/v1/session'

export type SessionDeps = {
  readonly authenticator: Authenticator
  readonly hosts: AllowedHosts
  readonly sessionMs: number
  /** Name of this node. */
  readonly node: string
  /** Whether this node listens with TLS. */
  readonly hasTls: boolean
}

const time: Schema = { type: 'string', description: 'RFC 3339.' }
const ANSWER: Schema = {
  type: 'object',
  required: ['session', 'node', 'version', 'can_sign_in'],
  properties: {
    session: {
      type: ['object', 'null'],
      description: 'null while signed out.',
      properties: {
        token_id: { type: 'string' },
        token_name: { type: 'string' },
        role: { type: 'string', enum: ['viewer', 'editor', 'approver', 'admin'] },
        expires_at: time,
        csrf: { type: 'string', description: 'Send it as `X-Sluice-Csrf` with every request that changes something.' },
      },
    },
    node: { type: 'string', description: 'Name of the node that answered.' },
    version: { type: 'string', description: 'Version of Sluice.' },
    can_sign_in: { type: 'boolean', description: 'Whether this node knows a token that can sign in.' },
  },
}
const BODY: Schema = {
  type: 'object',
  additionalProperties: false,
  required: ['token'],
  properties: { token: text('API token with the role viewer or higher.', 'sluice_4pG0c2kTn1b…', 512) },
  'x-fix': 'send a JSON object with a token',
}
const tags = ['admin']

export function sessionRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const config = { access: 'open' as const }
  const probe = { operationId: 'session', summary: 'Session of the dashboard', tags, response: answers(ANSWER) }
  app.get(SESSION_PATH, { schema: probe, config }, (request, reply) => {
    reply.header('cache-control', 'no-store')
    return shown(deps, request.caller.session)
  })
  signInRoute(app, deps)
  const end = {
    operationId: 'signOut',
    summary: 'End a session of the dashboard',
    tags,
    response: { 204: { description: 'Signed out.', type: 'null' } },
  }
  app.delete(SESSION_PATH, { schema: end, config }, (_request, reply) => {
    reply
      .header('set-cookie', setSessionCookie('', 0, true))
      .code(204)
      .send()
  })
}

function signInRoute(app: FastifyInstance, deps: SessionDeps): void {
  const { authenticator, hosts, sessionMs } = deps
  const schema = {
    operationId: 'signIn',
    summary: 'Start a session of the dashboard',
    description:
      'Sets a cookie that works on every node and ends with its token. Refused with 403 for pages of other sites.',
    tags,
    body: BODY,
    response: answers(ANSWER),
  }
  const config = { access: 'open' as const, signsIn: true as const }
  app.post<{ Body: { token: string } }>(SESSION_PATH, { schema, config }, (request, reply) => {
    requireDashboardHost(request, hosts)
    if (!hosts.isSameOrigin(request.raw)) {
      throw new ProblemError(problem('FORBIDDEN', 'Only the sign-in page of this dashboard may start a session.'))
    }
    const { token: secret } = request.body
    const token = authenticator.token(secret, request.ip)
    if (!roleAllows(token.role, 'viewer')) {
      throw unauthorized(
        `This token has the role ${token.role}; the dashboard needs viewer, editor, approver or admin.`,
      )
    }
    const nowMs = authenticator.nowMs()
    const endMs = Math.min(nowMs + sessionMs, token.expiresAt === null ? Infinity : Date.parse(token.expiresAt))
    const { cookie, session } = sealSession(token, secret, endMs)
    setCookie(request, reply, deps, cookie, Math.ceil((endMs - nowMs) / 1000))
    return shown(deps, session)
  })
}

/** A client that claims TLS falsely only makes its own cookie unusable. */
function setCookie(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  { hasTls }: SessionDeps,
  cookie: string,
  seconds: number,
): void {
  const isSecure = hasTls || headers['x-forwarded-proto'] === 'https'
  reply.header('set-cookie', setSessionCookie(cookie, seconds, isSecure)).header('cache-control', 'no-store')
}

/** Refuses names that are not configured: see AllowedHosts. */
export function requireDashboardHost({ headers: { host } }: FastifyRequest, hosts: AllowedHosts): void {
  if (hosts.allows(host)) return
  const detail = `The dashboard is not served under the name ${host ?? '(none)'}: add it to --dashboard-hosts.`
  throw new ProblemError(problem('FORBIDDEN', detail))
}

function shown({ authenticator, node }: SessionDeps, session: Session | undefined): object {
  const facts = { node, version: VERSION, can_sign_in: authenticator.canSignIn }
  if (session === undefined) return { session: null, ...facts }
  const { token, expiresMs, csrf } = session
  const expires_at = new Date(expiresMs).toISOString()
  return { session: { token_id: token.tokenId, token_name: token.name, role: token.role, expires_at, csrf }, ...facts }
}
