// A running service, from its settings: everything is put together here, and taken apart in the opposite order.

import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { createLimiter, type Limiter } from 'sluice'
import { createApp } from './http/app.ts'
import type { Lifecycle } from './http/health.ts'
import { keyHash, type Log } from './log.ts'
import { Metrics } from './metrics.ts'
import { openStore } from './open-store.ts'
import { filePrint } from './rules/file-watch.ts'
import { followRuleFile } from './rules/live-rules.ts'
import { readRuleFile } from './rules/rule-file.ts'
import type { Settings } from './settings.ts'

export type Server = {
  /** `http://127.0.0.1:8080` */
  readonly address: string
  readonly limiter: Limiter
  readonly storeKind: string
  /** From now on /readyz says 503; everything is still served. */
  drain(): void
  /** Ends when every request in flight is answered, or was cut off because it took too long. */
  close(): Promise<void>
}

const CLOSE_MS_MAX = 10_000

/** Throws when the rules are wrong (RULE_INVALID) or the address cannot be had (an error of Node). */
export async function startServer(settings: Settings, log: Log, closeMsMax: number = CLOSE_MS_MAX): Promise<Server> {
  const print = filePrint(settings.rules)
  const rules = readRuleFile(settings.rules)
  const metrics = new Metrics()
  const store = await openStore(settings, metrics, log)
  const { layer, ipv6Prefix } = settings
  const limiter = createLimiter({ rules, store: store.store, layer, ipv6Prefix })
  const lifecycle: Lifecycle = { draining: false }
  const shared = { limiter, metrics, log, store, lifecycle }
  const app = await createApp({ ...shared, keyHash: keyHash(settings.keySecret), rulesPath: settings.rules })
  try {
    await app.listen({ host: settings.host, port: settings.port })
  } catch (error) {
    await limiter.close()
    throw error
  }
  const watch = followRuleFile({ ...shared, path: settings.rules, print })
  return {
    address: addressOf(app.server.address() as AddressInfo), // it listens on a port, not on a pipe
    limiter,
    storeKind: store.kind,
    drain: () => {
      lifecycle.draining = true
    },
    close: async () => {
      lifecycle.draining = true
      watch.stop()
      await closeWithin(app, closeMsMax)
      await limiter.close()
    },
  }
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
