// Opens the gRPC listener of a node: stack, access, TLS, metrics.

import { systemClock, wallClock } from 'sluice'
import { Authenticator } from '../access/authenticator.ts'
import { ClientConnections } from '../access/client-connections.ts'
import { Throttle } from '../access/throttle.ts'
import type { TokenRegistry } from '../access/token-registry.ts'
import { GrpcAccess } from '../grpc/access.ts'
import type { CallCap, GrpcServer, TlsOptions } from '../grpc/method.ts'
import { CallCounts, servedMethod } from '../grpc/served-method.ts'
import { DEFAULT_STACK, STACKS } from '../grpc/stacks.ts'
import { type Log, oncePerMinute } from '../log.ts'
import { isLoopback } from '../settings/loopback.ts'
import { settingInvalid } from '../settings/setting-invalid.ts'
import type { Settings } from '../settings/settings.ts'
import { type GrpcDeps, grpcServices } from './grpc-methods.ts'
import { followCertificates, tlsOptions } from './listen.ts'

export type OpenGrpc = {
  /** Such as `127.0.0.1:8081`. */
  readonly address: string
  /** Health reports NOT_SERVING from now on; calls are still served. */
  drain(): void
  close(drainMs: number): Promise<void>
}

export type OpenGrpcDeps = Omit<GrpcDeps, 'access' | 'settings'> & {
  readonly tokens: TokenRegistry
  /** Whether tokens can be created while the node runs. */
  readonly hasDatabase: boolean
}

const CALL_CAP_FIXES: Readonly<Record<CallCap, string>> = {
  connection: 'open more connections in the client, or raise --grpc-max-streams',
  process: 'find clients that leave streams open, or raise --grpc-max-calls',
}

/** Undefined without --grpc-port. Throws OPTION_INVALID if every call would be refused. */
export async function openGrpc(settings: Settings, deps: OpenGrpcDeps): Promise<OpenGrpc | undefined> {
  const { grpcPort: port, grpcHost: host, grpcStack: stack = DEFAULT_STACK, adminToken } = settings
  if (port === undefined) return undefined
  const { tokens, metrics, log, hasDatabase } = deps
  requireAccess(settings, tokens, hasDatabase)
  const throttle = new Throttle(systemClock)
  const authenticator = new Authenticator({ tokens, adminToken, hosts: undefined, metrics, throttle, clock: wallClock })
  const access = new GrpcAccess({ authenticator, throttle, checksAreOpen: checksAreOpen(settings) })
  const counts = new CallCounts()
  const refused = (cap: CallCap) =>
    oncePerMinute((count) => log.event('grpc_calls_refused', { cap, refused: count, fix: CALL_CAP_FIXES[cap] }))
  const reportRefused = { connection: refused('connection'), process: refused('process') }
  const services = grpcServices({ ...deps, settings, access })
  const server = STACKS[stack]({
    methods: services.methods.map((method) => servedMethod(method, counts)),
    limits: {
      messageBytesMax: settings.grpcMaxMessageBytes,
      streamsMax: settings.grpcMaxStreams,
      callsMax: settings.grpcMaxCalls,
      connectionsMax: settings.grpcMaxConnections,
      connectionAge: connectionAge(settings),
    },
    tls: grpcTls(settings),
    clients: metrics.watchConnections(new ClientConnections('grpc', settings, log)),
    onRefused: (cap) => reportRefused[cap](),
    onError: (error, method) => log.event('grpc_internal_error', { err: error, method }),
  })
  metrics.watchGrpc(() => ({
    ...server.stats(),
    ended: counts.list(),
    messages: counts.messages,
    remote: services.facts(),
  }))
  const bound = await server.listen({ host, port })
  const address = `${host.includes(':') ? `[${host}]` : host}:${bound.port}`
  log.event('grpc_listening', { address, stack, tls: settings.tlsCert !== undefined })
  const certificates = followTls(server, settings, log)
  return {
    address,
    drain: () => services.drain(),
    close: async (drainMs) => {
      certificates.stop()
      services.close()
      await server.close(drainMs)
    },
  }
}

function connectionAge({ grpcMaxConnectionAgeMs: maxMs, grpcMaxConnectionAgeGraceMs: graceMs }: Settings) {
  return maxMs === undefined ? undefined : { maxMs, graceMs }
}

function followTls(server: GrpcServer, settings: Settings, log: Log): { stop(): void } {
  return followCertificates(settings, log, () => {
    const tls = grpcTls(settings)
    if (tls !== undefined) server.replaceTls(tls)
  })
}

function grpcTls(settings: Settings): TlsOptions | undefined {
  const options = tlsOptions(settings)
  if (options === undefined) return undefined
  const { key, cert, ca } = options as { key: Buffer; cert: Buffer; ca?: Buffer } // tlsOptions reads files
  return { key, cert, clientCa: ca }
}

/** Default: open on loopback addresses, which only this machine can reach. */
function checksAreOpen({ checks, grpcHost }: Settings): boolean {
  return checks === undefined ? isLoopback(grpcHost) : checks === 'open'
}

function requireAccess(settings: Settings, tokens: TokenRegistry, hasDatabase: boolean): void {
  const { grpcHost, tlsClientCa, adminToken } = settings
  const hasTokens = hasDatabase || adminToken !== undefined || tokens.someMayCheck(wallClock.nowUs() / 1000)
  if (checksAreOpen(settings) || tlsClientCa !== undefined || hasTokens) return
  throw settingInvalid(
    'grpc-host',
    grpcHost,
    'every call would get UNAUTHENTICATED: add a token with the role check to --tokens-file, give --tls-client-ca, ' +
      'or give --checks open in a trusted network',
  )
}
