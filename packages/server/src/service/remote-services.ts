// gRPC services for remote nodes: leases of Sluice's own limiters, and quotas of Envoy.

import { randomBytes } from 'node:crypto'
import type { Limiter, Store } from 'sluice'
import type { GrpcAccess } from '../grpc/access.ts'
import { createLeaseMethods, EXCHANGE_PATH } from '../grpc/leases/lease-methods.ts'
import type { Method } from '../grpc/method.ts'
import { createQuotaService } from '../grpc/rlqs/quota-service.ts'
import type { Log } from '../log.ts'
import type { RemoteFacts } from '../metrics/grpc-metrics.ts'
import type { OpenChecks } from './open-checks.ts'

export type RemoteServices = {
  readonly methods: readonly Method[]
  facts(): RemoteFacts
  /** Ends streams, which could otherwise last for days. */
  close(): void
}

export type RemoteServicesDeps = {
  readonly limiter: Limiter
  /** The store below the leases of this node. */
  readonly store: Store
  readonly checks: OpenChecks
  /** Nodes of the service on this store, as configured. */
  readonly nodes: number | undefined
  readonly log: Log
}

export function openRemoteServices({ limiter, store, checks, nodes, log }: RemoteServicesDeps) {
  return (access: GrpcAccess): RemoteServices => {
    const leases = createLeaseMethods(
      {
        ...{ limiter, store, keys: checks.receiptKeys, check: checks.checks.check, receipts: checks.receipts },
        newId: createIds(),
        onError: (error) => log.event('grpc_internal_error', { err: error, method: EXCHANGE_PATH }),
      },
      { callerOf: (call) => access.require(call, 'check'), isStillValid: (caller) => access.isStillValid(caller) },
    )
    const quotas = createQuotaService({
      limiter,
      authorize: (call) => {
        const caller = access.require(call, 'check')
        return () => access.isStillValid(caller)
      },
      nowMs: () => performance.now(),
      nodes,
    })
    const close = () => {
      leases.close()
      quotas.close()
    }
    const facts = () => ({ ...leases.facts(), ...quotas.facts() })
    return { methods: [...leases.methods, quotas.method], facts, close }
  }
}

/** Ids that no other process generates. */
function createIds(): () => string {
  const prefix = randomBytes(9).toString('base64url')
  let count = 0
  return () => {
    count += 1
    return `${prefix}-${count.toString(36)}`
  }
}
