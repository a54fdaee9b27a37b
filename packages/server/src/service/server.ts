// Builds a node of the service from its settings, and closes it in reverse order.

import type { Server as TlsServer } from 'node:https'
import type { FastifyInstance } from 'fastify'
import { createLimiter, type Limiter, wallClock } from 'sluice'
import { ClientConnections } from '../access/client-connections.ts'
import type { TokenRegistry } from '../access/token-registry.ts'
import type { Check } from '../checks/check-controller.ts'
import { UnknownContent } from '../compatibility/unknown-content.ts'
import { BypassRegistry } from '../exceptions/bypass-registry.ts'
import { createApp } from '../http/app.ts'
import { LastAnswers } from '../http/last-answers.ts'
import type { Lifecycle } from '../http/node-health.ts'
import type { Log } from '../log.ts'
import { Metrics } from '../metrics/metrics.ts'
import type { RolloutTiming } from '../rollouts/rollout-node.ts'
import { LiveRules } from '../rules/live-rules.ts'
import { isFirstStart, openRules } from '../rules/open-rules.ts'
import { CLOSE_MS_MAX, STOP_MS_MAX } from '../settings/deadlines.ts'
import { headerOptions } from '../settings/header-settings.ts'
import { isLoopback } from '../settings/loopback.ts'
import type { Settings } from '../settings/settings.ts'
import { openRegion } from '../store/open-region.ts'
import { type OpenStore, openStore } from '../store/open-store.ts'
import { openTelemetry, type Telemetry } from '../telemetry/telemetry.ts'
import { workerNumber } from '../worker-number.ts'
import { reportMetrics } from '../workers/node-metrics.ts'
import { joinWorkers, type NodeWorkers } from '../workers/node-workers.ts'
import { logPolicyDecisions } from '../workers/policy-log.ts'
import { openAdminState } from './admin-state.ts'
import { followCertificates, listen, tlsOptions } from './listen.ts'
import { announceTo, openAlerts, type WatchTiming } from './open-alerts.ts'
import { openChecks } from './open-checks.ts'
import { openDashboard } from './open-dashboard.ts'
import { openEnvoy } from './open-envoy.ts'
import { openEvents } from './open-events.ts'
import { openExceptions } from './open-exceptions.ts'
import { openFleet } from './open-fleet.ts'
import type { OpenGrpc, OpenGrpcDeps } from './open-grpc.ts'
import { openRollouts } from './open-rollouts.ts'
import type { RemoteServicesDeps } from './remote-services.ts'

/** Intervals, for tests. */
export type Timing = WatchTiming & { readonly rollouts?: RolloutTiming }

export type Server = {
  /** `http://127.0.0.1:8080`, or `unix:` and the path of a socket file. */
  readonly address: string
  /** Address of the gRPC API, such as `127.0.0.1:8081`. Undefined without --grpc-port. */
  readonly grpcAddress: string | undefined
  readonly limiter: Limiter
  readonly metrics: Metrics
  /** Undefined without --otlp-endpoint. */
  readonly telemetry: Telemetry | undefined
  /** For checks that do not arrive over the HTTP API, such as those of the gateway. */
  readonly check: Check
  readonly storeKind: OpenStore['kind']
  readonly checksAreOpen: boolean
  /** False when checks need a token and no known token has the role for them. */
  readonly checksArePossible: boolean
  readonly hasDashboard: boolean
  /** False if there is no token to sign in to the dashboard with. */
  readonly signInIsPossible: boolean
  /** Admin token created by this start, to be shown once. */
  readonly firstToken: string | undefined
  /** Location of the rule source: `the file /etc/sluice/rules.yaml`. */
  readonly rulesLocation: string
  /** From now on /readyz returns 503; all requests are still served. */
  drain(): void
  /**
   * Resolves when every request in flight is answered, or was aborted at the close deadline. Events and spans that are
   * not stored after `ms` are given up.
   */
  close(ms?: number): Promise<void>
}

/** Time to store the last events must leave for what closes after them. */
const AFTER_EVENTS_MS = 1000
const AFTER_SPANS_MS = 250

/** Functions that close what was opened, in the order of opening. */
type Closers = ((leftMs: () => number) => Promise<void> | void)[]
type CloseAll = (ms: number) => Promise<void>

/** Throws when the rules are invalid (RULE_INVALID) or unavailable, and when the address cannot be bound. */
export async function startServer(
  settings: Settings,
  log: Log,
  closeMsMax: number = CLOSE_MS_MAX,
  timing: Timing = {},
): Promise<Server> {
  const closers: Closers = []
  const closeAll = async (ms: number) => {
    const endMs = performance.now() + ms
    for (const close of closers.reverse()) await close(() => endMs - performance.now())
  }
  try {
    return await openServer(settings, log, { closeMsMax, timing }, closers, closeAll)
  } catch (error) {
    await closeAll(STOP_MS_MAX) // open connections and threads would keep the process alive
    throw error
  }
}

async function openServer(
  settings: Settings,
  log: Log,
  { closeMsMax, timing }: { readonly closeMsMax: number; readonly timing: Timing },
  closers: Closers,
  closeAll: CloseAll,
): Promise<Server> {
  const metrics = new Metrics()
  const telemetry = await openTelemetry(settings, { metrics, log })
  closers.push((leftMs) => telemetry?.close(leftMs() - AFTER_SPANS_MS))
  const workers = await joinWorkers()
  closers.push(reportMetrics(workers, metrics))
  if (workers.count === 0) closers.push(logPolicyDecisions(() => metrics.policyReasons(), log))
  const openedLimiter = await openLimiter(settings, metrics, log, closers)
  const { location, ruleStore, database, store, limiter, live } = openedLimiter
  const unknown = new UnknownContent(log)
  metrics.watchUnknown(unknown)
  const services = await openCheckServices(settings, openedLimiter, { metrics, log, workers, unknown }, timing, closers)
  const { admin, events, rollouts, exceptions } = services
  const access = { adminToken: settings.adminToken, checksAreOpen: checksAreOpen(settings) }
  const lifecycle: Lifecycle = { draining: false }
  const { describeIncident } = exceptions
  const shown = { killSwitch: admin.killSwitch, events, rollouts: rollouts.node, database, describeIncident }
  const node = { limiter, live, store, metrics, lifecycle, workers, unknown, ...shown }
  const alerts = openAlerts(settings, node, log, timing)
  const fleet = openFleet(settings, { ...node, alerts }, log)
  const { checks, history, receipts, sharedDecisions } = services.checks
  const envoy = openEnvoy(settings, { limiter, store, checks, log })
  closers.push(() => envoy.close())
  const app = await createApp({
    ...{
      limiter,
      store,
      live,
      ruleStore,
      metrics,
      log,
      keyHash: events.keyHash,
      lifecycle,
      unknown,
      access,
      admin,
      events,
    },
    ...{ checks, history, receipts, sharedDecisions, exceptions, workers, telemetry, fleet },
    replays: { layer: settings.layer, ipv6Prefix: settings.ipv6Prefix },
    rollouts: { ...rollouts, guardMs: settings.guardEditsMs },
    clients: settings,
    headers: headerOptions(settings),
    tls: tlsOptions(settings),
    dashboard: openDashboard(settings),
    envoy: envoy.decide,
  })
  const clients = metrics.watchConnections(new ClientConnections('http', settings, log))
  clients.watch(app.server)
  const opened: Ports = { app, grpc: undefined, lastAnswers: undefined }
  closers.push(() => closePorts(opened, clients, closeMsMax))
  const address = await listenWithCertificates(app, settings, log, closers)
  const hasDatabase = database !== undefined
  opened.grpc = await openGrpc(settings, {
    ...{ tokens: admin.tokens, hasDatabase, limiter, checks, receipts, events: events.pipeline, metrics, log },
    knownKeys: events.knownKeys,
    ...{
      envoy: envoy.decide,
      remote: { limiter, store: store.unleased, checks: services.checks, nodes: settings.nodes, log },
    },
  })
  fleet.start(address)
  closers.push(() => fleet.stop())
  alerts.start()
  closers.push(() => alerts.close())
  return running(opened, lifecycle, closeAll, {
    ...{
      address,
      grpcAddress: opened.grpc?.address,
      limiter,
      metrics,
      telemetry,
      check: checks.check,
      storeKind: store.kind,
      rulesLocation: location,
    },
    checksAreOpen: access.checksAreOpen,
    checksArePossible: access.checksAreOpen || someMayCheck(settings.adminToken, admin.tokens),
    ...dashboardFacts(settings, admin.tokens),
    firstToken: admin.firstToken,
  })
}

type GrpcDeps = Omit<OpenGrpcDeps, 'remote'> & { readonly remote: RemoteServicesDeps }

/** Loads gRPC and its services only if they are used: they are a tenth of all modules. */
async function openGrpc(settings: Settings, { remote, ...deps }: GrpcDeps): Promise<OpenGrpc | undefined> {
  if (settings.grpcPort === undefined) return undefined
  const [grpc, services] = await Promise.all([import('./open-grpc.ts'), import('./remote-services.ts')])
  return grpc.openGrpc(settings, { ...deps, remote: services.openRemoteServices(remote) })
}

async function listenWithCertificates(
  app: FastifyInstance,
  settings: Settings,
  log: Log,
  closers: Closers,
): Promise<string> {
  const address = await listen(app, settings)
  const certificates = followCertificates(settings, log, (tls) => {
    const server = app.server as unknown as TlsServer // called with TLS only
    server.setSecureContext(tls)
  })
  closers.push(() => certificates.stop())
  return address
}

/** Opens the services that checks and admin routes use, in this order. */
async function openCheckServices(
  settings: Settings,
  { location, registry, database, store, limiter, live }: Awaited<ReturnType<typeof openLimiter>>,
  {
    metrics,
    log,
    workers,
    unknown,
  }: {
    readonly metrics: Metrics
    readonly log: Log
    readonly workers: NodeWorkers
    readonly unknown: UnknownContent
  },
  timing: Timing,
  closers: Closers,
) {
  const admin = await openAdminState(settings, {
    ...{ database, location, limiter, unknown, log, workers },
    wantsFirstToken: wantsFirstToken(settings.adminToken),
  })
  closers.push(() => admin.close())
  const { countsFile } = workers
  const { sharedValues } = store
  const events = await openEvents(settings, {
    ...{ database, limiter, store: store.store, sharedValues, metrics, log, countsFile },
  })
  closers.push((leftMs) => events.close(leftMs() - AFTER_EVENTS_MS))
  const rollouts = await openRollouts({ database, limiter, live, metrics, log, timing: timing.rollouts })
  closers.push(() => rollouts.close())
  const exceptions = await openExceptions(settings, {
    ...{ database, location, limiter, registry, unknown, metrics, log },
    keyHash: events.keyHash,
    announce: announceTo(workers),
  })
  closers.push(() => exceptions.close())
  const checks = await openChecks(settings, {
    ...{ limiter, store, database, events, rollouts, metrics, log },
    exceptions: exceptions.hooks,
  })
  closers.push(() => checks.close())
  return { admin, events, rollouts, exceptions, checks }
}

/** The first worker prints the banner that shows the token. */
function wantsFirstToken(adminToken: string | undefined): boolean {
  return adminToken === undefined && workerNumber() <= 1
}

function dashboardFacts({ dashboard, adminToken }: Settings, { size }: TokenRegistry) {
  return { hasDashboard: dashboard === 'on', signInIsPossible: adminToken !== undefined || size > 0 }
}

function someMayCheck(adminToken: string | undefined, tokens: TokenRegistry): boolean {
  return adminToken !== undefined || tokens.someMayCheck(wallClock.nowUs() / 1000)
}

async function openLimiter(settings: Settings, metrics: Metrics, log: Log, closers: Closers) {
  const { layer, ipv6Prefix } = settings
  if (isFirstStart(settings)) log.event('database_creating', { folder: settings.dataDir })
  const { source, store: ruleStore, snapshot, database } = await openRules(settings)
  closers.push(() => source.close())
  const store = await openRegion(settings, await openStore(settings, metrics, log), metrics, log)
  const registry = new BypassRegistry(() => wallClock.nowUs() / 1000)
  const bypass = (token: string) => registry.verify(token)
  const limiter = createLimiter({ rules: [], version: 0, store: store.store, layer, ipv6Prefix, bypass })
  closers.push(() => limiter.close())
  closers.push(() => store.pressure.stop())
  const live = new LiveRules({ source, snapshot, limiter, metrics, log })
  closers.push(() => live.stop())
  await live.start()
  return { location: source.location, ruleStore, database, store, limiter, live, registry }
}

/** Ports of a node, and the last answers of the HTTP port once it drains. */
type Ports = { readonly app: FastifyInstance; grpc: OpenGrpc | undefined; lastAnswers: LastAnswers | undefined }

function running(
  ports: Ports,
  lifecycle: Lifecycle,
  closeAll: CloseAll,
  facts: Omit<Server, 'drain' | 'close'>,
): Server {
  const drain = () => {
    if (lifecycle.draining) return
    lifecycle.draining = true
    ports.grpc?.drain()
    ports.lastAnswers = new LastAnswers(ports.app.server)
  }
  let closing: Promise<void> | undefined
  const close = (ms = STOP_MS_MAX) => {
    drain()
    closing ??= closeAll(ms)
    return closing
  }
  return { ...facts, drain, close }
}

/** Ends connections whose requests never end: Node.js stops enforcing request timeouts once a server closes. */
async function closePorts({ app, grpc, lastAnswers }: Ports, clients: ClientConnections, ms: number): Promise<void> {
  const closed = (async () => {
    await lastAnswers?.sent()
    await app.close()
  })()
  await Promise.all([grpc?.close(ms), clients.endWithin(ms, closed)])
}

/** Default: open on loopback addresses and socket files, which only this machine can reach. */
function checksAreOpen({ checks, socket, host }: Settings): boolean {
  return checks === undefined ? socket !== undefined || isLoopback(host) : checks === 'open'
}
