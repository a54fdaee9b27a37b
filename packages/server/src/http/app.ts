// The HTTP face of the service: which routes there are and what they share. Bodies are bounded and validated strictly
// (nothing is coerced, nothing silently dropped), and whatever goes wrong leaves as a problem document.

import { type FastifyInstance, fastify } from 'fastify'
import type { Clock } from 'sluice'
import type { Check } from '../checking.ts'
import type { ClientSettings } from '../client-settings.ts'
import type { KeyHash, Log } from '../log.ts'
import { Admissions } from './admissions.ts'
import { authRoutes } from './auth.ts'
import { authorizeRoutes } from './authorize.ts'
import { batchRoute } from './batch.ts'
import { checkRoute } from './check.ts'
import { createDecide } from './decide.ts'
import { drillRoute } from './drill.ts'
import { type HealthParts, healthRoutes } from './health.ts'
import { hotKeysRoute } from './hot-keys.ts'
import { parseJsonBodies } from './json-body.ts'
import { answerUnknown } from './not-found.ts'
import { describeRoutes, openapiRoutes } from './openapi.ts'
import { ProblemError } from './problem.ts'
import { refundRoute } from './refund.ts'
import { regionsRoute } from './regions.ts'
import { parseRuleBodies } from './rule-bodies.ts'
import { ruleSetRoutes } from './rule-set.ts'
import type { RulesParts } from './rule-writes.ts'
import { rulesRoutes } from './rules.ts'
import { sendProblem } from './send-problem.ts'
import { problemOf } from './trouble.ts'

export type AppParts = HealthParts &
  RulesParts & {
    readonly log: Log
    readonly keyHash: KeyHash
    readonly check: Check
    /** Who may speak for clients, and where their facts are read. */
    readonly clients: ClientSettings
    /** What requests to admin endpoints must carry; undefined: there are none. */
    readonly adminToken: string | undefined
    /** For `reset_at` and headers: the time of buckets is the store's. */
    readonly clock?: Clock | undefined
  }

const REQUEST_MS_MAX = 10_000

export async function createApp(parts: AppParts): Promise<FastifyInstance> {
  const { limiter, metrics, store } = parts
  const app = createFastify(parts.log)
  const admissions = new Admissions(() => {
    metrics.admissionsDropped += 1
  })
  const decide = createDecide({ ...parts, admissions })
  metrics.watchLimiter(limiter)
  authorizeRoutes(app, parts.adminToken)
  answerUnknown(app)
  parseJsonBodies(app)
  await describeRoutes(app)
  checkRoute(app, decide)
  batchRoute(app, decide)
  await authRoutes(app, parts)
  refundRoute(app, limiter, admissions)
  await app.register(async (scope) => {
    parseRuleBodies(scope, { yaml: false })
    rulesRoutes(scope, parts)
  })
  await app.register(async (scope) => {
    parseRuleBodies(scope, { yaml: true })
    ruleSetRoutes(scope, parts)
  })
  hotKeysRoute(app, parts)
  regionsRoute(app, limiter, store.region)
  drillRoute(app, store, parts)
  healthRoutes(app, parts)
  openapiRoutes(app)
  return app
}

/** Fastify's own logger is off: it would make a child logger for each request. */
function createFastify(log: Log): FastifyInstance {
  const app = fastify({
    logger: false,
    requestTimeout: REQUEST_MS_MAX,
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
