// A running service, from its settings: everything is put together here, and taken apart in the opposite order.

import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { createLimiter, type Limiter } from 'sluice'
import { type Check, createCheck } from './checking.ts'
import { createApp } from './http/app.ts'
import type { Lifecycle } from './http/health.ts'
import { keyHash, type Log } from './log.ts'
import { Metrics } from './metrics.ts'
import { type OpenStore, openStore } from './open-store.ts'
import { filePrint } from './rules/file-watch.ts'
import { followRuleFile } from './rules/live-rules.ts'
import { useRuleFile } from './rules/rule-file.ts'
import type { Settings } from './settings.ts'

export type Server = {
  /** `http://127.0.0.1:8080` */
  readonly address: string
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly check: Check
  readonly storeKind: OpenStore['kind']
  /** From now on /readyz says 503; everything is still served. */
  drain(): void
  /** Ends when every request in flight is answered, or was cut off because it took too long. */
  close(): Promise<void>
}

export const CLOSE_MS_MAX = 10_000

/** Throws when the rules are wrong (RULE_INVALID) or the address cannot be had (an error of Node). */
export async function startServer(settings: Settings, log: Log, closeMsMax: number = CLOSE_MS_MAX): Promise<Server> {
  const { layer, ipv6Prefix, rules: path } = settings
  const print = filePrint(path)
  const metrics = new Metrics()
  const store = await openStore(settings, metrics, log)
  try {
    const limiter = useRuleFile(path, (rules) => createLimiter({ rules, store: store.store, layer, ipv6Prefix }))
    const lifecycle: Lifecycle = { draining: false }
    const shared = { limiter, metrics, log, store, lifecycle, keyHash: keyHash(settings.keySecret) }
    const check = createCheck({ ...shared, answersSync: store.store.takeSync !== undefined })
    const app = await createApp({
      ...shared,
      check,
      clients: settings,
      rulesPath: path,
      adminToken: settings.adminToken,
    })
    await app.listen({ host: settings.host, port: settings.port })
    const watch = followRuleFile({ ...shared, path, print })
    return running(app, { limiter, metrics, check, storeKind: store.kind }, lifecycle, async () => {
      watch.stop()
      await closeWithin(app, closeMsMax)
      await limiter.close()
    })
  } catch (error) {
    await store.store.close() // or its connections would keep the process alive
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
  const close = () => {
    drain()
    return stop()
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
