// Starts a gateway: a node of the service plus the proxy listener. On close, the listener closes first, so that
// requests in flight can still be decided.

import { ClientConnections } from '../access/client-connections.ts'
import type { Log } from '../log.ts'
import { type Server, startServer } from '../service/server.ts'
import { CLOSE_MS_MAX, STOP_MS_MAX } from '../settings/deadlines.ts'
import { settingInvalid } from '../settings/setting-invalid.ts'
import { Gateway } from './gateway.ts'
import { GatewayMetrics } from './gateway-metrics.ts'
import { openListener } from './listener.ts'
import type { GatewaySettings } from './settings.ts'

export type RunningGateway = Server & {
  /** Address of the API, health and metrics; `address` is that of the gateway. */
  readonly apiAddress: string
}

/** Throws like `startServer`, and also if no upstream is configured. */
export async function startGateway(
  settings: GatewaySettings,
  log: Log,
  closeMsMax: number = CLOSE_MS_MAX,
): Promise<RunningGateway> {
  const { upstream, routes, listen, listenCert } = settings
  if (upstream === undefined && routes.length === 0)
    throw settingInvalid(
      'upstream',
      undefined,
      'give the URL of the upstream, such as http://127.0.0.1:3000, or a --route',
    )
  warnIfJwtUnverified(settings, log)
  const server = await startServer(withoutCertificates(settings), log, closeMsMax)
  try {
    const { limiter, check, telemetry } = server
    const metrics = new GatewayMetrics(server.metrics.registry)
    const gateway = new Gateway(settings, { limiter, check, log, metrics, telemetry })
    const clients = server.metrics.watchConnections(new ClientConnections('gateway', settings, log))
    const listener = await openListener(gateway, settings, clients, closeMsMax)
    const host = listen.host.includes(':') ? `[${listen.host}]` : listen.host
    const drain = () => {
      server.drain()
      gateway.draining = true
      listener.drain()
    }
    const close = async (ms = STOP_MS_MAX) => {
      const startedMs = performance.now()
      drain()
      gateway.closeWebSockets()
      await listener.close()
      await gateway.close()
      await server.close(ms - (performance.now() - startedMs))
    }
    const address = `${listenCert === undefined ? 'http' : 'https'}://${host}:${listener.port}`
    return { ...server, address, apiAddress: server.address, drain, close }
  } catch (error) {
    await server.close()
    throw error
  }
}

function warnIfJwtUnverified({ userFrom, apiKeyFrom, tenantFrom, planFrom, ...keys }: GatewaySettings, log: Log): void {
  const readsTokens = [userFrom, apiKeyFrom, tenantFrom, planFrom].some((source) => source?.kind === 'jwt')
  if (readsTokens && keys.jwtKey === undefined && keys.jwtSecret === undefined) log.event('jwt_unverified', {})
}

/** Settings for the API, whose callers present no client certificates. */
function withoutCertificates(settings: GatewaySettings): GatewaySettings {
  const { userFrom, apiKeyFrom, tenantFrom, planFrom } = settings
  const sources = Object.entries({ userFrom, apiKeyFrom, tenantFrom, planFrom })
  const kept = sources.map(([name, source]) => [name, source?.kind === 'cert' ? undefined : source])
  return { ...settings, ...Object.fromEntries(kept) }
}
