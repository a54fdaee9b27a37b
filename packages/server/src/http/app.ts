// The HTTP face of the service: which routes there are and what they share. Bodies are bounded and validated strictly
// (nothing is coerced, nothing silently dropped), and whatever goes wrong leaves as a problem document.

import type { ServerOptions } from 'node:https'
import { type FastifyInstance, fastify } from 'fastify'
import { type Clock, wallClock } from 'sluice'
import type { HeaderOptions } from 'sluice/http'
import { type GuardParts, guardRoutes } from '../access/guard.ts'
import type { Check } from '../checks/checking.ts'
import type { DecisionTrail } from '../checks/decision-trail.ts'
import type { Receipts } from '../checks/receipts.ts'
import type { SharedDecisions } from '../checks/shared-decisions.ts'
import type { KeyHash, Log } from '../log.ts'
import type { HealthParts } from '../node/health.ts'
import type { Records } from '../node/records.ts'
import { endMalformed } from '../problems/malformed.ts'
import { ProblemError } from '../problems/problem.ts'
import { problemOf } from '../problems/problem-of.ts'
import { sendProblem } from '../problems/send-problem.ts'
import type { ClientSettings } from '../settings/client-settings.ts'
import { aloneInNode, type NodeWorkers } from '../workers/node-workers.ts'
import { createDecide } from './bodies/decide.ts'
import { parseJsonBodies } from './bodies/json-body.ts'
import { parseRuleBodies } from './bodies/rule-bodies.ts'
import type { RulesParts } from './bodies/rule-writes.ts'
import { answerUnknown } from './not-found.ts'
import { auditRoute } from './routes/audit.ts'
import { authRoutes } from './routes/auth.ts'
import { batchRoute } from './routes/batch.ts'
import { checkRoute } from './routes/check.ts'
import { decisionsRoutes } from './routes/decisions.ts'
import { drillRoute } from './routes/drill.ts'
import { explainRoute } from './routes/explain.ts'
import { healthRoutes } from './routes/health.ts'
import { hotKeysRoute } from './routes/hot-keys.ts'
import { killSwitchRoutes } from './routes/kill-switch.ts'
import { describeRoutes, openapiRoutes } from './routes/openapi.ts'
import { refundRoute } from './routes/refund.ts'
import { regionsRoute } from './routes/regions.ts'
import { resetRoute } from './routes/reset.ts'
import { ruleSetRoutes } from './routes/rule-set.ts'
import { rulesRoutes } from './routes/rules.ts'
import { tokensRoutes } from './routes/tokens.ts'
import { violationsRoute } from './routes/violations.ts'

export type AppParts = Omit<HealthParts, 'killSwitch' | 'workers'> &
  RulesParts & {
    readonly log: Log
    readonly keyHash: KeyHash
    readonly access: Pick<GuardParts, 'adminToken' | 'checksAreOpen'>
    readonly records: Records
    readonly trail: DecisionTrail
    readonly receipts: Receipts
    readonly sharedDecisions: SharedDecisions | undefined
    readonly check: Check
    /** Alone by default. */
    readonly workers?: NodeWorkers | undefined
    /** Who may speak for clients, and where their facts are read. */
    readonly clients: ClientSettings
    readonly headers: HeaderOptions
    /** Undefined: in clear. */
    readonly tls?: ServerOptions | undefined
    /** For `reset_at` and headers: the time of buckets is the store's. */
    readonly clock?: Clock | undefined
  }

const REQUEST_MS_MAX = 10_000
/** With Node's defaults, heads would be cut after up to 40 s, and bodies after 60 s: it swaps a longer head limit. */
const PUNCTUAL = { headersTimeout: REQUEST_MS_MAX, connectionsCheckingInterval: 1000 }
/** A request id of 1024 characters, each of them escaped. */
const PARAMETER_LENGTH_MAX = 12 * 1024

export async function createApp(parts: AppParts): Promise<FastifyInstance> {
  const { limiter, metrics, store, records, log, keyHash, clock = wallClock } = parts
  const { workers = aloneInNode() } = parts
  const nowMs = () => clock.nowUs() / 1000
  const app = createFastify(parts)
  const decide = createDecide(parts)
  metrics.watchLimiter(limiter)
  metrics.watchRecords(records)
  guardRoutes(app, { ...parts.access, tokens: records.tokens, metrics, clock: parts.clock })
  answerUnknown(app)
  parseJsonBodies(app)
  await describeRoutes(app)
  checkRoute(app, decide)
  batchRoute(app, decide)
  await authRoutes(app, parts)
  refundRoute(app, limiter, parts.receipts)
  await app.register(async (scope) => {
    parseRuleBodies(scope, { yaml: false })
    rulesRoutes(scope, parts)
  })
  await app.register(async (scope) => {
    parseRuleBodies(scope, { yaml: true })
    ruleSetRoutes(scope, parts)
  })
  explainRoute(app, limiter, clock)
  decisionsRoutes(app, { ...parts, workers })
  hotKeysRoute(app, { limiter, keyHash, workers })
  regionsRoute(app, { limiter, region: store.region, workers })
  resetRoute(app, { limiter, log, audited: records.audited })
  violationsRoute(app, records.findViolations)
  tokensRoutes(app, records.tokenStore, nowMs)
  auditRoute(app, records.verifyAudit)
  killSwitchRoutes(app, { limiter, ...records, nowIso: () => new Date(nowMs()).toISOString() })
  drillRoute(app, { store, log, audited: records.audited, workers, clock })
  healthRoutes(app, { ...parts, ...records, workers })
  openapiRoutes(app)
  return app
}

/** Fastify's own logger is off: it would make a child logger for each request. */
function createFastify({ log, tls }: AppParts): FastifyInstance {
  const app = fastify({
    ...(tls === undefined ? { http: PUNCTUAL } : { https: { ...tls, ...PUNCTUAL, handshakeTimeout: REQUEST_MS_MAX } }),
    logger: false,
    requestTimeout: REQUEST_MS_MAX,
    routerOptions: { maxParamLength: PARAMETER_LENGTH_MAX },
    ajv: {
      customOptions: {
        allErrors: true,
        allowUnionTypes: true,
        coerceTypes: false,
        keywords: ['x-fix'],
        removeAdditional: false,
        useDefaults: false,
        verbose: true,
      },
    },
    clientErrorHandler: endMalformed,
    frameworkErrors: (error, _request, reply) => {
      sendProblem(reply, problemOf(error))
    },
  })
  app.setErrorHandler<Error>((error, request, reply) => {
    const problem = problemOf(error, request.headers)
    // A store in trouble is logged when it begins and ends, not once per request.
    if (problem.code === 'INTERNAL') log.error({ err: error, route: request.routeOptions.url }, problem.detail)
    if (error instanceof ProblemError) reply.headers(error.headers)
    return sendProblem(reply, problem)
  })
  return app
}
