// Lists the gRPC services of a node. Each folder of grpc/ has one, as a function that returns its methods.

import { type Limiter, wallClock } from 'sluice'
import type { CheckController } from '../checks/check-controller.ts'
import type { KnownKeys } from '../checks/known-keys.ts'
import type { Receipts } from '../checks/receipts.ts'
import { createRefund } from '../checks/refund.ts'
import type { DecideRateLimit } from '../envoy/rate-limit-service.ts'
import type { EventPipeline } from '../events/pipeline.ts'
import type { GrpcAccess } from '../grpc/access.ts'
import { shouldRateLimit } from '../grpc/envoy/should-rate-limit.ts'
import { GrpcHealth, HEALTH_SERVICE } from '../grpc/health/health.ts'
import type { Method } from '../grpc/method.ts'
import { rateLimiterService } from '../grpc/rate-limiter/rate-limiter.ts'
import { reflectionMethods } from '../grpc/reflection/reflection.ts'
import type { Log } from '../log.ts'
import type { RemoteFacts } from '../metrics/grpc-metrics.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { headerOptions } from '../settings/header-settings.ts'
import type { Settings } from '../settings/settings.ts'
import type { RemoteServices } from './remote-services.ts'

/** Dependencies of the services. */
export type GrpcDeps = {
  readonly settings: Settings
  readonly access: GrpcAccess
  readonly envoy: DecideRateLimit
  readonly limiter: Limiter
  readonly checks: CheckController
  readonly receipts: Receipts
  /** Undefined: no sink is configured. */
  readonly events: EventPipeline | undefined
  readonly knownKeys: KnownKeys | undefined
  readonly metrics: Metrics
  readonly log: Log
  /** Services for remote nodes: leases and quotas. */
  readonly remote: (access: GrpcAccess) => RemoteServices
}

/** The services of a node. */
export type GrpcServices = {
  readonly methods: readonly Method[]
  /** Health reports NOT_SERVING from now on; calls are still served. */
  drain(): void
  facts(): RemoteFacts
  /** Ends streams, which could otherwise last for days. */
  close(): void
}

export function grpcServices({
  settings,
  access,
  limiter,
  checks,
  receipts,
  events,
  knownKeys,
  envoy,
  remote: openRemote,
  log,
}: GrpcDeps): GrpcServices {
  const rateLimiter = rateLimiterService({
    ...{ access, limiter, checks, headers: headerOptions(settings), clock: wallClock },
    refund: createRefund({ limiter, receipts, events }),
    knownKeys,
    onError: (error, method) => log.event('grpc_internal_error', { err: error, method }),
  })
  const remote = openRemote(access)
  const methods: Method[] = [...rateLimiter.methods, shouldRateLimit(envoy, access), ...remote.methods]
  const names = [...new Set(methods.map(({ path }) => serviceOf(path)))]
  const health = new GrpcHealth([...names, 'ratelimit']) // the name that probes of envoyproxy/ratelimit ask for
  const close = () => {
    rateLimiter.close()
    remote.close()
    health.close()
  }
  const standard = [...health.methods(), ...reflectionMethods([...names, HEALTH_SERVICE])]
  return { methods: [...methods, ...standard], drain: () => health.drain(), facts: remote.facts, close }
}

/** `/sluice.v1.RateLimiter/Check` → `sluice.v1.RateLimiter`. */
function serviceOf(path: string): string {
  return path.slice(1, path.lastIndexOf('/'))
}
