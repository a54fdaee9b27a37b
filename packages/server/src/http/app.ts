// Builds the HTTP API: parsers, guard, routes and error handling. Bodies are bounded and validated strictly (nothing is
// coerced or silently dropped), and every error is sent as a problem document.

import type { ServerOptions } from 'node:https'
import { type FastifyInstance, fastify } from 'fastify'
import { type Clock, type Limiter, wallClock } from 'sluice'
import type { HeaderOptions } from 'sluice/http'
import type { AllowedHosts } from '../access/allowed-hosts.ts'
import type { Authenticator } from '../access/authenticator.ts'
import { HANDSHAKE_MS_MAX } from '../access/client-connections.ts'
import { type GuardDeps, guardRoutes } from '../access/guard.ts'
import type { TokenRegistry } from '../access/token-registry.ts'
import type { TokenStore } from '../approvals/token-store.ts'
import type { Audited, AuditVerdict } from '../audit/audit.ts'
import type { ListAudit } from '../audit/audit-list.ts'
import type { CheckController } from '../checks/check-controller.ts'
import type { DecisionHistory } from '../checks/decision-history.ts'
import type { KnownKeys } from '../checks/known-keys.ts'
import type { Receipts } from '../checks/receipts.ts'
import { createRefund } from '../checks/refund.ts'
import type { SharedDecisions } from '../checks/shared-decisions.ts'
import type { UnknownContent } from '../compatibility/unknown-content.ts'
import type { DashboardFile } from '../dashboard/dashboard-files.ts'
import { DemoTraffic } from '../demo/demo-traffic.ts'
import type { DecideRateLimit } from '../envoy/rate-limit-service.ts'
import type { Analytics } from '../events/analytics.ts'
import type { EventPipeline } from '../events/pipeline.ts'
import type { FindViolations } from '../events/violations.ts'
import type { BypassTable } from '../exceptions/bypass-table.ts'
import type { OverrideTable } from '../exceptions/override-table.ts'
import type { SignalTable } from '../exceptions/signal-table.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { IncidentTable } from '../incident/incident-table.ts'
import type { KillStore, KillSwitch } from '../kill-switch/kill-switch.ts'
import type { KeyHash, Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { endMalformed } from '../problems/malformed.ts'
import { ProblemError } from '../problems/problem.ts'
import { problemOf } from '../problems/problem-of.ts'
import { sendProblem } from '../problems/send-problem.ts'
import type { ProposalStore } from '../rollouts/proposal-store.ts'
import type { RolloutNode } from '../rollouts/rollout-node.ts'
import type { LiveRules } from '../rules/live-rules.ts'
import type { RuleStore } from '../rules/rule-store.ts'
import type { ClientSettings } from '../settings/client-settings.ts'
import type { Settings } from '../settings/settings.ts'
import type { OpenStore } from '../store/open-store.ts'
import type { Telemetry } from '../telemetry/telemetry.ts'
import { type NodeWorkers, singleWorker } from '../workers/node-workers.ts'
import { parseJsonBodies } from './bodies/json-body.ts'
import { parseRuleBodies } from './bodies/rule-bodies.ts'
import { CHECK_BYTES_MAX } from './bodies/schemas.ts'
import { EventStreams } from './event-streams.ts'
import { LAZY_SCHEMAS } from './lazy-schemas.ts'
import type { Lifecycle } from './node-health.ts'
import { handleUnknownRoutes } from './not-found.ts'
import { analyticsRoutes } from './routes/analytics.ts'
import { auditRoute } from './routes/audit.ts'
import { auditListRoute } from './routes/audit-list.ts'
import { authRoutes } from './routes/auth.ts'
import { batchRoute } from './routes/batch.ts'
import { bypassRoutes } from './routes/bypass-tokens.ts'
import { checkRoute } from './routes/check.ts'
import { dashboardRoutes, type SendPage } from './routes/dashboard.ts'
import { decisionsRoutes } from './routes/decisions.ts'
import { demoRoutes } from './routes/demo.ts'
import { drillRoute } from './routes/drill.ts'
import { envoyJsonRoute } from './routes/envoy-json.ts'
import { eventStreamRoute } from './routes/event-stream.ts'
import { explainRoute } from './routes/explain.ts'
import { fleetRoutes } from './routes/fleet.ts'
import { healthRoutes } from './routes/health.ts'
import { hotKeysRoute } from './routes/hot-keys.ts'
import { incidentRoutes } from './routes/incident.ts'
import { killSwitchRoutes } from './routes/kill-switch.ts'
import { describeRoutes, openapiRoutes } from './routes/openapi.ts'
import { overridesRoutes } from './routes/overrides.ts'
import { proposalsRoutes } from './routes/proposals.ts'
import { refundRoute } from './routes/refund.ts'
import { regionsRoute } from './routes/regions.ts'
import { resetRoute } from './routes/reset.ts'
import { ruleSetRoutes } from './routes/rule-set.ts'
import { ruleValidationRoute } from './routes/rule-validation.ts'
import { rulesRoutes } from './routes/rules.ts'
import { sessionRoutes } from './routes/session.ts'
import { signalsRoutes } from './routes/signals.ts'
import { type SimulateDeps, simulateRoutes } from './routes/simulate.ts'
import { tokensRoutes } from './routes/tokens.ts'
import { violationsRoute } from './routes/violations.ts'
import { webhooksRoute } from './routes/webhooks.ts'
import { traceRequests } from './trace-requests.ts'
import { waitForNodes } from './wait-for-nodes.ts'

/** State behind the admin routes. Optional members are undefined on a node without a database. */
export type AdminDeps = {
  readonly tokens: TokenRegistry
  readonly tokenStore: TokenStore | undefined
  readonly killSwitch: KillSwitch
  readonly kills: KillStore
  readonly verifyAudit: (() => Promise<AuditVerdict>) | undefined
  readonly listAudit: ListAudit | undefined
  /** Runs a change and records it in the audit log. Without a database, only runs it. */
  readonly audited: Audited
}

/** Exceptions to rules. All members are undefined on a node without a database. */
export type ExceptionsDeps = {
  readonly overrides: OverrideTable | undefined
  readonly bypassTokens: BypassTable | undefined
  readonly signals: SignalTable | undefined
  readonly incident: IncidentTable | undefined
}

/** Queries over decision events. Undefined members: no sink of this node can answer them. */
export type EventsDeps = {
  readonly pipeline: EventPipeline | undefined
  readonly findViolations: FindViolations | undefined
  readonly analytics: Analytics | undefined
  readonly knownKeys: KnownKeys | undefined
  /** Age of the oldest event of this node that waits to be stored where analytics read. */
  lagMs(): number
  degradedReason(): string | undefined
}

/** Proposals and rollouts. Undefined members: this node has no database. */
export type RolloutDeps = {
  readonly proposals: ProposalStore | undefined
  readonly node: Pick<RolloutNode, 'degradedReason' | 'refresh'> | undefined
  /** Time for which direct edits are guarded; 0: never. */
  readonly guardMs: number
}

/** Dashboard of a node and its sessions. */
export type DashboardOptions = {
  /** Undefined: the dashboard is not built. */
  readonly files: ReadonlyMap<string, DashboardFile> | undefined
  readonly hosts: AllowedHosts
  readonly sessionMs: number
  readonly node: string
}

export type AppDeps = {
  readonly limiter: Limiter
  readonly store: OpenStore
  readonly live: LiveRules
  readonly ruleStore: RuleStore | undefined
  readonly metrics: Metrics
  readonly log: Log
  readonly keyHash: KeyHash
  readonly lifecycle: Lifecycle
  /** Default: this node reads nothing that other nodes write. */
  readonly unknown?: UnknownContent | undefined
  readonly access: Pick<GuardDeps, 'adminToken' | 'checksAreOpen'>
  readonly admin: AdminDeps
  readonly exceptions: ExceptionsDeps
  readonly events: EventsDeps
  readonly checks: CheckController
  readonly history: DecisionHistory
  readonly receipts: Receipts
  readonly sharedDecisions: SharedDecisions | undefined
  /** Default: no proposals, and direct edits are not guarded. */
  readonly rollouts?: RolloutDeps | undefined
  /** Layer and IPv6 prefix of the limiter, for simulations. */
  readonly replays?: Pick<SimulateDeps, 'layer' | 'ipv6Prefix'> | undefined
  /** Default: this process is the only worker. */
  readonly workers?: NodeWorkers | undefined
  /** Default: requests are not traced. */
  readonly telemetry?: Telemetry | undefined
  /** Trusted proxies and sources of client facts. */
  readonly clients: ClientSettings & Pick<Settings, 'ipv6Prefix'>
  readonly headers: HeaderOptions
  /** Default: this node does not know other nodes. */
  readonly fleet?: Fleet | undefined
  /** Default: no dashboard and no sessions. */
  readonly dashboard?: DashboardOptions | undefined
  /** Default: no POST /json. */
  readonly envoy?: DecideRateLimit | undefined
  /** Undefined: plain HTTP. */
  readonly tls?: ServerOptions | undefined
  /** For `reset_at` and headers: buckets use the time of the store. */
  readonly clock?: Clock | undefined
}

const REQUEST_MS_MAX = 10_000
/**
 * Set explicitly: by default Node.js checks timeouts every 30 s only, and it swaps headersTimeout and requestTimeout if
 * the former is longer. Headers would get up to 40 s, and bodies 60 s.
 */
const TIMEOUTS = { headersTimeout: REQUEST_MS_MAX, connectionsCheckingInterval: 1000 }
/** Fits a request id of 1024 percent-encoded characters. */
const PARAMETER_LENGTH_MAX = 12 * 1024

export async function createApp(deps: AppDeps): Promise<FastifyInstance> {
  const { limiter, store, live, ruleStore, metrics, log, keyHash, lifecycle, admin, checks, events } = deps
  const { history, receipts, sharedDecisions, workers = singleWorker(), clients, headers, clock = wallClock } = deps
  const { killSwitch, kills, audited } = admin
  const nowMs = () => clock.nowUs() / 1000
  const app = createFastify(log, deps.tls)
  if (deps.telemetry !== undefined) traceRequests(app, deps.telemetry)
  metrics.watchLimiter(limiter)
  metrics.watchAdmin(admin)
  waitForNodes(app, lifecycle)
  const { authenticator, sendPage } = await addGuard(app, deps)
  const streams = new EventStreams(app, authenticator)
  checkRoute(app, checks.answer)
  batchRoute(app, checks.answer)
  await authRoutes(app, { limiter, check: checks.check, clients, headers, log, metrics, clock })
  refundRoute(app, createRefund({ limiter, receipts, events: events.pipeline }))
  const { rollouts } = deps
  await app.register(async (scope) => {
    parseRuleBodies(scope, { yaml: false })
    rulesRoutes(scope, { limiter, live, ruleStore, rollouts, clock })
    proposalsRoutes(scope, { limiter, live, ruleStore, proposals: rollouts?.proposals })
  })
  await app.register(async (scope) => {
    parseRuleBodies(scope, { yaml: true })
    ruleSetRoutes(scope, { limiter, live, ruleStore, rollouts })
    ruleValidationRoute(scope, { limiter, live, ruleStore, clock })
  })
  explainRoute(app, limiter, clock, events.knownKeys)
  decisionsRoutes(app, { history, sharedDecisions, keyHash, headers, workers })
  hotKeysRoute(app, { limiter, keyHash, workers, fleet: deps.fleet })
  webhooksRoute(app, workers)
  regionsRoute(app, { limiter, region: store.region, workers })
  resetRoute(app, { limiter, log, audited, events: events.pipeline })
  violationsRoute(app, events.findViolations)
  analyticsRoutes(app, { analytics: events.analytics, clock })
  simulateRoutes(app, {
    ...{ limiter, analytics: events.analytics, rules: { limiter, live, ruleStore }, clock },
    ...{ layer: deps.replays?.layer, ipv6Prefix: deps.replays?.ipv6Prefix },
  })
  eventStreamRoute(app, { analytics: events.analytics, lagMs: () => events.lagMs(), keyHash, streams, clock })
  tokensRoutes(app, admin.tokenStore, nowMs)
  auditRoute(app, admin.verifyAudit)
  auditListRoute(app, admin.listAudit)
  killSwitchRoutes(app, { limiter, killSwitch, kills, nowIso: () => new Date(nowMs()).toISOString() })
  exceptionRoutes(app, deps, nowMs)
  drillRoute(app, { store, log, audited, workers, clock })
  demoRoutes(app, {
    limiter,
    live,
    ruleStore,
    demo: new DemoTraffic({ limiter, live, check: checks.check, log, clock }),
  })
  if (deps.envoy !== undefined) await envoyJsonRoute(app, deps.envoy)
  if (deps.fleet !== undefined) fleetRoutes(app, { fleet: deps.fleet, streams, clock })
  const { unknown } = deps
  healthRoutes(app, {
    ...{ limiter, metrics, store, live, lifecycle, killSwitch, workers, events, unknown },
    rollouts: rollouts?.node,
  })
  openapiRoutes(app, sendPage)
  return app
}

function exceptionRoutes(app: FastifyInstance, deps: AppDeps, nowMs: () => number): void {
  const { limiter, exceptions, clients } = deps
  const { ipv6Prefix } = clients
  overridesRoutes(app, { limiter, overrides: exceptions.overrides, ipv6Prefix, nowMs })
  bypassRoutes(app, { limiter, bypassTokens: exceptions.bypassTokens, nowMs })
  signalsRoutes(app, { limiter, signals: exceptions.signals, ipv6Prefix, nowMs })
  incidentRoutes(app, { incident: exceptions.incident, nowMs })
}

type Guarded = { readonly authenticator: Authenticator; readonly sendPage: SendPage }

/** Adds the guard, the hooks of all routes, and the dashboard with its sessions. */
async function addGuard(app: FastifyInstance, deps: AppDeps): Promise<Guarded> {
  const { access, admin, metrics, clock, dashboard, tls } = deps
  const authenticator = guardRoutes(app, {
    tokens: admin.tokens,
    adminToken: access.adminToken,
    checksAreOpen: access.checksAreOpen,
    metrics,
    hosts: dashboard?.hosts,
    clock,
  })
  let sendPage: SendPage = () => false
  handleUnknownRoutes(app, (request, reply) => sendPage(request, reply))
  parseJsonBodies(app)
  await describeRoutes(app)
  if (dashboard === undefined) return { authenticator, sendPage }
  sendPage = dashboardRoutes(app, dashboard)
  const { hosts, sessionMs, node } = dashboard
  sessionRoutes(app, { authenticator, hosts, sessionMs, node, hasTls: tls !== undefined })
  return { authenticator, sendPage }
}

/** Fastify's own logger is off: it would create a child logger per request. */
function createFastify(log: Log, tls: ServerOptions | undefined): FastifyInstance {
  const app = fastify({
    ...(tls === undefined
      ? { http: TIMEOUTS }
      : { https: { ...tls, ...TIMEOUTS, handshakeTimeout: HANDSHAKE_MS_MAX } }),
    logger: false,
    return503OnClosing: false, // requests of connections that are open are answered as usual
    bodyLimit: CHECK_BYTES_MAX,
    requestTimeout: REQUEST_MS_MAX,
    routerOptions: { maxParamLength: PARAMETER_LENGTH_MAX },
    schemaController: LAZY_SCHEMAS,
    ajv: {
      customOptions: {
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
    // A failing store is logged when the outage begins and ends, not once per request.
    const isCancelled = reply.raw.destroyed && error.name === 'AbortError' // the client is gone
    if (problem.code === 'INTERNAL' && !isCancelled)
      log.event('internal_error', { err: error, route: request.routeOptions.url })
    if (error instanceof ProblemError) reply.headers(error.headers)
    return sendProblem(reply, problem)
  })
  return app
}
