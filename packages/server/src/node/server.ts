// A running service, from its settings: everything is put together here, and taken apart in the opposite order.

import type { FastifyInstance } from 'fastify'
import { createLimiter, type Limiter, wallClock } from 'sluice'
import { type Check, createCheck } from '../checks/checking.ts'
import { DecisionTrail } from '../checks/decision-trail.ts'
import { SharedDecisions } from '../checks/shared-decisions.ts'
import { openRegion } from '../counters/open-region.ts'
import { type OpenStore, openStore } from '../counters/open-store.ts'
import { createApp } from '../http/app.ts'
import { plainDecision } from '../http/bodies/decision.ts'
import { keyHash, type Log } from '../log.ts'
import { Metrics } from '../metrics/metrics.ts'
import { LiveRules } from '../rules/live-rules.ts'
import { isFirstStart, openRules } from '../rules/open-rules.ts'
import { headerOptions } from '../settings/header-settings.ts'
import type { Settings } from '../settings/settings.ts'
import { type NodeState, watchNode } from '../webhooks/node-watch.ts'
import { Webhooks } from '../webhooks/webhooks.ts'
import { reportMetrics } from '../workers/node-metrics.ts'
import { joinWorkers, workerNumber } from '../workers/node-workers.ts'
import { decisionSlots } from './decision-slots.ts'
import { type HealthParts, type Lifecycle, nodeHealth, troubleOf } from './health.ts'
import { followCertificates, listen, tlsOptions } from './listen.ts'
import { isLoopback } from './loopback.ts'
import { openReceipts } from './open-receipts.ts'
import { openRecords } from './records.ts'

export type Server = {
  /** `http://127.0.0.1:8080`, or `unix:` and the path of a socket file. */
  readonly address: string
  readonly limiter: Limiter
  readonly metrics: Metrics
  /** The door for requests that do not come over its API. */
  readonly check: Check
  readonly storeKind: OpenStore['kind']
  readonly checksAreOpen: boolean
  /** False: checks over the API need a token, and no token that this node knows may check. */
  readonly checksArePossible: boolean
  /** A token of the role admin that this start has made: to be shown once. */
  readonly firstToken: string | undefined
  /** Where the rules come from: `the file /etc/sluice/rules.yaml`. */
  readonly rulesPlace: string
  /** From now on /readyz says 503; everything is still served. */
  drain(): void
  /** Ends when every request in flight is answered, or was cut off because it took too long. */
  close(): Promise<void>
}

export const CLOSE_MS_MAX = 10_000

/** Throws when the rules are wrong (RULE_INVALID) or cannot be had, and when the address cannot be had. */
export async function startServer(settings: Settings, log: Log, closeMsMax: number = CLOSE_MS_MAX): Promise<Server> {
  const { layer, ipv6Prefix } = settings
  const metrics = new Metrics()
  const closers: (() => Promise<void>)[] = []
  const closeAll = async () => {
    for (const close of closers.reverse()) await close()
  }
  try {
    const workers = await joinWorkers()
    closers.push(reportMetrics(workers, metrics))
    if (isFirstStart(settings)) log.info({ folder: settings.dataDir }, 'making the database: some seconds, this once')
    const { source, store: ruleStore, snapshot, database } = await openRules(settings)
    closers.push(() => source.close())
    const store = await openRegion(settings, await openStore(settings, metrics, log), metrics, log)
    const limiter = createLimiter({ rules: [], version: 0, store: store.store, layer, ipv6Prefix })
    closers.push(() => limiter.close())
    closers.push(async () => store.pressure.stop())
    const live = new LiveRules({ source, snapshot, limiter, metrics, log })
    closers.push(() => live.stop())
    await live.start()
    const { adminToken } = settings
    // Of several workers the first one has the banner that shows it.
    const wantsFirstToken = adminToken === undefined && workerNumber() <= 1
    const kept = { place: source.place, wantsFirstToken, workers }
    const records = await openRecords(database, { ...settings, ...kept, limiter, log })
    closers.push(() => records.close())
    const lifecycle: Lifecycle = { draining: false }
    const hash = keyHash(settings.keySecret)
    const shared = { limiter, live, ruleStore, metrics, log, store, lifecycle, workers, keyHash: hash }
    const access = { adminToken, checksAreOpen: checksAreOpen(settings) }
    const { receipts, close: closeReceipts } = await openReceipts(settings, { limiter, store, metrics, log })
    closers.push(async () => closeReceipts())
    const slots = decisionSlots(store.notes, database)
    const sharedDecisions = slots && new SharedDecisions(slots, (traced) => plainDecision(traced, shared.keyHash))
    if (sharedDecisions !== undefined) {
      metrics.kept.decisions = sharedDecisions
      closers.push(() => sharedDecisions.close())
    }
    const trail = new DecisionTrail(wallClock, (traced) => sharedDecisions?.share(traced))
    const check = createCheck({ ...shared, ...records, trail })
    const tls = tlsOptions(settings)
    const face = { access, tls, clients: settings, headers: headerOptions(settings) }
    const app = await createApp({ ...shared, receipts, sharedDecisions, check, records, trail, ...face })
    closers.push(() => closeWithin(app, closeMsMax))
    const address = await listen(app, settings)
    const certificates = followCertificates(app, settings, log)
    closers.push(async () => certificates.stop())
    closers.push(tellWebhooks(settings, { ...shared, ...records }, log))
    const places = { address, storeKind: store.kind, rulesPlace: source.place }
    const someMayCheck = adminToken !== undefined || records.tokens.someMayCheck(wallClock.nowUs() / 1000)
    const checksArePossible = access.checksAreOpen || someMayCheck
    const facts = { ...places, checksAreOpen: access.checksAreOpen, checksArePossible, limiter, metrics, check }
    return running(app, { ...facts, firstToken: records.firstToken }, lifecycle, closeAll)
  } catch (error) {
    await closeAll() // or connections and threads would keep the process alive
    throw error
  }
}

function running(
  app: FastifyInstance,
  facts: Omit<Server, 'drain' | 'close'>,
  lifecycle: Lifecycle,
  stop: () => Promise<void>,
): Server {
  const drain = () => {
    if (lifecycle.draining) return
    lifecycle.draining = true
    // Clients that keep connections open are told not to use them again, or the next request would meet a closed one.
    app.server.prependListener('request', (_request, response) => response.setHeader('connection', 'close'))
  }
  let closing: Promise<void> | undefined
  const close = () => {
    drain()
    closing ??= stop()
    return closing
  }
  return { ...facts, drain, close }
}

/** Node stops watching for slow requests once a server closes, so one that never ends has to be cut off here. */
async function closeWithin(app: FastifyInstance, closeMsMax: number): Promise<void> {
  const timer = setTimeout(() => app.server.closeAllConnections(), closeMsMax)
  await app.close()
  clearTimeout(timer)
}

/** Whoever can reach a loopback address or a socket file is on this machine; elsewhere, checks need a token too. */
function checksAreOpen({ checks, socket, host }: Settings): boolean {
  return checks === undefined ? socket !== undefined || isLoopback(host) : checks === 'open'
}

/** Returns what ends it. */
function tellWebhooks(settings: Settings, parts: HealthParts, log: Log): () => Promise<void> {
  const { webhooks: urls, webhookSecret: secret } = settings
  if (urls === undefined || secret === undefined) return async () => {}
  const webhooks = new Webhooks({ urls, secret, log })
  parts.metrics.watchWebhooks(webhooks)
  const watch = watchNode(
    () => stateOf(parts),
    (type, data) => parts.workers.isLead() && webhooks.tell(type, data),
  )
  return async () => {
    watch.stop()
    await webhooks.close()
  }
}

/** Only the lead worker tells webhooks, and it tells the trouble of every worker. The others keep up, to follow it. */
async function stateOf(parts: HealthParts): Promise<NodeState> {
  const { limiter, killSwitch, workers } = parts
  const [rulesVersion, rules] = [limiter.version, limiter.rules.length]
  const { trouble } = workers.isLead() ? await nodeHealth(parts) : { trouble: troubleOf(parts) }
  return { rulesVersion, rules, trouble, killed: killSwitch.inWords() }
}
