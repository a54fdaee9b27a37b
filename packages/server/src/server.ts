// A running service, from its settings: everything is put together here, and taken apart in the opposite order.

import type { FastifyInstance } from 'fastify'
import { createLimiter, type Limiter } from 'sluice'
import { createApp } from './http/app.ts'
import type { Lifecycle } from './http/health.ts'
import { followCertificates, listen, tlsOptions } from './listen.ts'
import { keyHash, type Log } from './log.ts'
import { isLoopback } from './loopback.ts'
import { Metrics } from './metrics.ts'
import { type OpenStore, openStore } from './open-store.ts'
import { openRecords } from './records.ts'
import { filePrint } from './rules/file-watch.ts'
import { followRuleFile } from './rules/live-rules.ts'
import { useRuleFile } from './rules/rule-file.ts'
import type { Settings } from './settings.ts'

export type Server = {
  /** `http://127.0.0.1:8080`, or `unix:` and the path of a socket file. */
  readonly address: string
  readonly limiter: Limiter
  readonly storeKind: OpenStore['kind']
  readonly checksAreOpen: boolean
  /** From now on /readyz says 503; everything is still served. */
  drain(): void
  /** Ends when every request in flight is answered, or was cut off because it took too long. */
  close(): Promise<void>
}

const CLOSE_MS_MAX = 10_000

/** Throws when the rules are wrong (RULE_INVALID) or the address cannot be had (an error of Node). */
export async function startServer(settings: Settings, log: Log, closeMsMax: number = CLOSE_MS_MAX): Promise<Server> {
  const { layer, ipv6Prefix, rules: path } = settings
  const print = filePrint(path)
  const metrics = new Metrics()
  const store = await openStore(settings, metrics, log)
  try {
    const limiter = useRuleFile(path, (rules) => createLimiter({ rules, store: store.store, layer, ipv6Prefix }))
    const isOpen = checksAreOpen(settings)
    const lifecycle: Lifecycle = { draining: false }
    const shared = { limiter, metrics, log, store, lifecycle }
    const records = await openRecords(undefined, { ...settings, limiter, log, wantsFirstToken: !settings.adminToken })
    const app = await createApp({
      ...shared,
      records,
      keyHash: keyHash(settings.keySecret),
      rulesPath: path,
      tls: tlsOptions(settings),
      access: { adminToken: settings.adminToken, checksAreOpen: isOpen },
    })
    const address = await listen(app, settings)
    const watch = followRuleFile({ ...shared, path, print })
    const certificates = followCertificates(app, settings, log)
    return running(app, { address, limiter, storeKind: store.kind, checksAreOpen: isOpen }, lifecycle, async () => {
      watch.stop()
      certificates.stop()
      await closeWithin(app, closeMsMax)
      await records.close()
      await limiter.close()
    })
  } catch (error) {
    await store.store.close() // or its connections would keep the process alive
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
  const close = () => {
    drain()
    return stop()
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
