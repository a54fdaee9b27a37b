// gRPC methods of sluice.v1.Leases: see proto/sluice/v1/lease.proto.

import { inSlices } from 'sluice'
import { decodeRequests, encodeReplies, ProtobufError, type WireRequest } from 'sluice/remote-wire'
import type { Caller } from '../../access/roles.ts'
import type { RemoteFacts } from '../../metrics/grpc-metrics.ts'
import { type Call, GrpcError, type Method } from '../method.ts'
import { expiresMsOf } from '../rate-limiter/rate-limiter.ts'
import { type ExchangeDeps, LeaseExchange, SLICE_MS } from './exchange.ts'
import { StateStreams } from './state-stream.ts'

export type LeaseMethods = {
  readonly methods: readonly Method[]
  facts(): Pick<RemoteFacts, 'nodes' | 'degradedNodes' | 'leases' | 'units'>
  close(): void
}

/** Checks the tokens of callers. */
export type LeaseAccess = {
  /** Throws GrpcError unless the call may check. */
  callerOf(call: Call): Caller
  isStillValid(caller: Caller): boolean
}

export const EXCHANGE_PATH = '/sluice.v1.Leases/Exchange'

export function createLeaseMethods(deps: ExchangeDeps, access: LeaseAccess): LeaseMethods {
  const exchange = new LeaseExchange(deps)
  const streams = new StateStreams(deps.limiter)
  return {
    methods: [
      {
        kind: 'unary',
        path: EXCHANGE_PATH,
        admit: access.callerOf,
        handle: async (message, call, caller) => {
          const expiresMs = expiresMsOf(call)
          const replies = await exchange.handle(await readRequests(message), caller, expiresMs)
          return inSlices(encodeReplies(replies), SLICE_MS)
        },
      },
      {
        kind: 'stream',
        path: '/sluice.v1.Leases/Watch',
        open: (call, output) => {
          const caller = access.callerOf(call)
          return streams.open(output, () => access.isStillValid(caller))
        },
      },
    ],
    facts: () => ({ nodes: streams.size, degradedNodes: streams.degraded, ...exchange.counts }),
    close: () => streams.close(),
  }
}

/** Requests per message. */
const REQUESTS_MAX = 1000

async function readRequests(message: Uint8Array): Promise<WireRequest[]> {
  try {
    const requests = await inSlices(decodeRequests(Buffer.from(message)), SLICE_MS)
    if (requests.length <= REQUESTS_MAX) return requests
  } catch (error) {
    if (error instanceof ProtobufError) throw new GrpcError('invalid_argument', `ExchangeRequest: ${error.message}`)
    throw error
  }
  throw new GrpcError('invalid_argument', `requests: send at most ${REQUESTS_MAX} in one message`)
}
