// A running service, from its settings: everything is put together here, and taken apart in the opposite order.

import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { createLimiter, type Limiter } from 'sluice'
import { type Check, createCheck } from './checking.ts'
import { createApp } from './http/app.ts'
import type { Lifecycle } from './http/health.ts'
import { keyHash, type Log } from './log.ts'
import { Metrics } from './metrics.ts'
import { openRegion } from './open-region.ts'
import { type OpenStore, openStore } from './open-store.ts'
import { LiveRules } from './rules/live-rules.ts'
import { openRules } from './rules/open-rules.ts'
import type { Settings } from './settings.ts'

export type Server = {
  /** `http://127.0.0.1:8080` */
  readonly address: string
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly check: Check
  readonly storeKind: OpenStore['kind']
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
    const { source, store: ruleStore, snapshot } = await openRules(settings)
    closers.push(() => source.close())
    const store = await openRegion(settings, await openStore(settings, metrics, log), metrics, log)
    const limiter = createLimiter({ rules: [], version: 0, store: store.store, layer, ipv6Prefix })
    closers.push(() => limiter.close())
    const live = new LiveRules({ source, snapshot, limiter, metrics, log })
    closers.push(() => live.stop())
    await live.start()
    const lifecycle: Lifecycle = { draining: false }
    const { adminToken } = settings
    const shared = { limiter, live, ruleStore, metrics, log, store, lifecycle, adminToken }
    const hashed = { ...shared, keyHash: keyHash(settings.keySecret) }
    const check = createCheck({ ...hashed, answersSync: store.store.takeSync !== undefined })
    const app = await createApp({ ...hashed, check, clients: settings })
    closers.push(() => closeWithin(app, closeMsMax))
    await app.listen({ host: settings.host, port: settings.port })
    const parts = { limiter, metrics, check, storeKind: store.kind, rulesPlace: source.place }
    return running(app, parts, lifecycle, closeAll)
  } catch (error) {
    await closeAll() // or connections and threads would keep the process alive
    throw error
  }
}

function running(
  app: FastifyInstance,
  parts: Omit<Server, 'address' | 'drain' | 'close'>,
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
  const address = addressOf(app.server.address() as AddressInfo) // it listens on a port, not on a pipe
  return { ...parts, address, drain, close }
}

/** Node stops watching for slow requests once a server closes, so one that never ends has to be cut off here. */
async function closeWithin(app: FastifyInstance, closeMsMax: number): Promise<void> {
  const timer = setTimeout(() => app.server.closeAllConnections(), closeMsMax)
  await app.close()
  clearTimeout(timer)
}

function addressOf({ address, family, port }: AddressInfo): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`
}
