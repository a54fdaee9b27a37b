// Builds a node of the service from its settings, and closes it in reverse order.

import type { FastifyInstance } from 'fastify'
import { createLimiter, type Limiter, wallClock } from 'sluice'
import type { TokenRegistry } from '../access/token-registry.ts'
import type { Check } from '../checks/check-controller.ts'
import { createApp } from '../http/app.ts'
import type { Lifecycle } from '../http/node-health.ts'
import type { Log } from '../log.ts'
import { Metrics } from '../metrics/metrics.ts'
import { LiveRules } from '../rules/live-rules.ts'
import { isFirstStart, openRules } from '../rules/open-rules.ts'
import { headerOptions } from '../settings/header-settings.ts'
import { isLoopback } from '../settings/loopback.ts'
import type { Settings } from '../settings/settings.ts'
import { openRegion } from '../store/open-region.ts'
import { type OpenStore, openStore } from '../store/open-store.ts'
import { openTelemetry, type Telemetry } from '../telemetry/telemetry.ts'
import { workerNumber } from '../worker-number.ts'
import { reportMetrics } from '../workers/node-metrics.ts'
import { joinWorkers } from '../workers/node-workers.ts'
import { openAdminState } from './admin-state.ts'
import { followCertificates, listen, tlsOptions } from './listen.ts'
import { openChecks } from './open-checks.ts'
import { openEvents } from './open-events.ts'
import { openWebhooks, type WatchTiming } from './open-webhooks.ts'

export type Server = {
  /** `http://127.0.0.1:8080`, or `unix:` and the path of a socket file. */
  readonly address: string
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
  /** Admin token created by this start, to be shown once. */
  readonly firstToken: string | undefined
  /** Location of the rule source: `the file /etc/sluice/rules.yaml`. */
  readonly rulesLocation: string
  /** From now on /readyz returns 503; all requests are still served. */
  drain(): void
  /** Resolves when every request in flight is answered, or was cut off at the close deadline. */
  close(): Promise<void>
}

export const CLOSE_MS_MAX = 10_000

/** Functions that close what was opened, in the order of opening. */
type Closers = (() => Promise<void> | void)[]

/** Throws when the rules are invalid (RULE_INVALID) or unavailable, and when the address cannot be bound. */
export async function startServer(
  settings: Settings,
  log: Log,
  closeMsMax: number = CLOSE_MS_MAX,
  timing: WatchTiming = {},
): Promise<Server> {
  const closers: Closers = []
  const closeAll = async () => {
    for (const close of closers.reverse()) await close()
  }
  try {
    return await openServer(settings, log, { closeMsMax, timing }, closers, closeAll)
  } catch (error) {
    await closeAll() // open connections and threads would keep the process alive
    throw error
  }
}

async function openServer(
  settings: Settings,
  log: Log,
  { closeMsMax, timing }: { readonly closeMsMax: number; readonly timing: WatchTiming },
  closers: Closers,
  closeAll: () => Promise<void>,
): Promise<Server> {
  const { adminToken } = settings
  const metrics = new Metrics()
  const telemetry = await openTelemetry(settings, { metrics, log })
  closers.push(() => telemetry?.close())
  const workers = await joinWorkers()
  closers.push(reportMetrics(workers, metrics))
  const { source, ruleStore, database, store, limiter, live } = await openLimiter(settings, metrics, log, closers)
  // The first worker prints the banner that shows the token.
  const wantsFirstToken = adminToken === undefined && workerNumber() <= 1
  const { location } = source
  const admin = await openAdminState(settings, { database, location, wantsFirstToken, limiter, log, workers })
  closers.push(() => admin.close())
  const events = await openEvents(settings, { database, limiter, metrics, log })
  closers.push(() => events.close())
  const opened = await openChecks(settings, { limiter, store, database, events, metrics, log })
  closers.push(() => opened.close())
  const { checks, history, receipts, sharedDecisions } = opened
  const access = { adminToken, checksAreOpen: checksAreOpen(settings) }
  const lifecycle: Lifecycle = { draining: false }
  const app = await createApp({
    limiter,
    store,
    live,
    ruleStore,
    metrics,
    log,
    keyHash: events.keyHash,
    lifecycle,
    access,
    admin,
    events,
    checks,
    history,
    receipts,
    sharedDecisions,
    workers,
    telemetry,
    clients: settings,
    headers: headerOptions(settings),
    tls: tlsOptions(settings),
  })
  closers.push(() => closeWithin(app, closeMsMax))
  const address = await listenWithCertificates(app, settings, log, closers)
  const node = { limiter, live, store, metrics, lifecycle, workers, killSwitch: admin.killSwitch, events }
  closers.push(openWebhooks(settings, node, log, timing))
  return running(app, lifecycle, closeAll, {
    address,
    limiter,
    metrics,
    telemetry,
    check: checks.check,
    storeKind: store.kind,
    checksAreOpen: access.checksAreOpen,
    checksArePossible: access.checksAreOpen || someMayCheck(adminToken, admin.tokens),
    firstToken: admin.firstToken,
    rulesLocation: location,
  })
}

async function listenWithCertificates(
  app: FastifyInstance,
  settings: Settings,
  log: Log,
  closers: Closers,
): Promise<string> {
  const address = await listen(app, settings)
  const certificates = followCertificates(app, settings, log)
  closers.push(() => certificates.stop())
  return address
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
  const limiter = createLimiter({ rules: [], version: 0, store: store.store, layer, ipv6Prefix })
  closers.push(() => limiter.close())
  closers.push(() => store.pressure.stop())
  const live = new LiveRules({ source, snapshot, limiter, metrics, log })
  closers.push(() => live.stop())
  await live.start()
  return { source, ruleStore, database, store, limiter, live }
}

function running(
  app: FastifyInstance,
  lifecycle: Lifecycle,
  closeAll: () => Promise<void>,
  facts: Omit<Server, 'drain' | 'close'>,
): Server {
  const drain = () => {
    if (lifecycle.draining) return
    lifecycle.draining = true
    // Clients must not reuse a connection that is about to close.
    app.server.prependListener('request', (_request, response) => response.setHeader('connection', 'close'))
  }
  let closing: Promise<void> | undefined
  const close = () => {
    drain()
    closing ??= closeAll()
    return closing
  }
  return { ...facts, drain, close }
}

/** Cuts off requests that never end: Node.js stops enforcing request timeouts once a server closes. */
async function closeWithin(app: FastifyInstance, closeMsMax: number): Promise<void> {
  const timer = setTimeout(() => app.server.closeAllConnections(), closeMsMax)
  await app.close()
  clearTimeout(timer)
}

/** Default: open on loopback addresses and socket files, which only this machine can reach. */
function checksAreOpen({ checks, socket, host }: Settings): boolean {
  return checks === undefined ? socket !== undefined || isLoopback(host) : checks === 'open'
}
