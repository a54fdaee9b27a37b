// A running gateway, from its settings: a node of the service with a door of its own in front. It closes in the
// opposite order, so that what is under way can still be decided.

import type { Log } from '../log.ts'
import { CLOSE_MS_MAX, type Server, startServer } from '../node/server.ts'
import { settingInvalid } from '../settings/setting-invalid.ts'
import { Gateway } from './gateway.ts'
import { GatewayMetrics } from './gateway-metrics.ts'
import { openListener } from './listener.ts'
import type { GatewaySettings } from './settings.ts'

export type RunningGateway = Server & {
  /** Where the API, health and metrics are; `address` is that of the gateway. */
  readonly apiAddress: string
}

/** Throws as `startServer` does, and for settings that do not go together. */
export async function startGateway(
  settings: GatewaySettings,
  log: Log,
  closeMsMax: number = CLOSE_MS_MAX,
): Promise<RunningGateway> {
  const { upstream, routes, listen, listenCert } = settings
  if (upstream === undefined && routes.length === 0)
    throw settingInvalid('upstream', undefined, 'give the service behind, such as http://127.0.0.1:3000, or a --route')
  warnOfUnverified(settings, log)
  const server = await startServer(withoutCertificates(settings), log, closeMsMax)
  try {
    const { limiter, check } = server
    const metrics = new GatewayMetrics(server.metrics.registry)
    const gateway = new Gateway(settings, { limiter, check, log, metrics })
    const listener = await openListener(gateway, settings, metrics, closeMsMax)
    const host = listen.host.includes(':') ? `[${listen.host}]` : listen.host
    const drain = () => {
      server.drain()
      gateway.draining = true
      listener.drain()
    }
    const close = async () => {
      drain()
      gateway.closeWebSockets()
      await listener.close()
      await gateway.close()
      await server.close()
    }
    const address = `${listenCert === undefined ? 'http' : 'https'}://${host}:${listener.port}`
    return { ...server, address, apiAddress: server.address, drain, close }
  } catch (error) {
    await server.close()
    throw error
  }
}

function warnOfUnverified({ userFrom, apiKeyFrom, tenantFrom, planFrom, ...keys }: GatewaySettings, log: Log): void {
  const readsTokens = [userFrom, apiKeyFrom, tenantFrom, planFrom].some((source) => source?.kind === 'jwt')
  if (readsTokens && keys.jwtKey === undefined && keys.jwtSecret === undefined)
    log.warn('tokens are not verified: a client can name itself as it likes; give --jwt-key or --jwt-secret')
}

/** Whoever asks the API has no certificate of the client. */
function withoutCertificates(settings: GatewaySettings): GatewaySettings {
  const { userFrom, apiKeyFrom, tenantFrom, planFrom } = settings
  const sources = Object.entries({ userFrom, apiKeyFrom, tenantFrom, planFrom })
  const kept = sources.map(([name, source]) => [name, source?.kind === 'cert' ? undefined : source])
  return { ...settings, ...Object.fromEntries(kept) }
}
