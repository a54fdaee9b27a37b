// The stacks on which the gRPC suite runs: `describe.each(STACK_NAMES)`.

import { onTestFinished } from 'vitest'
import type { Metrics } from '../../src/metrics/metrics.ts'
import { startServer } from '../../src/service/server.ts'
import { GRPC_STACKS, type GrpcStack } from '../../src/settings/grpc-settings.ts'
import type { Settings } from '../../src/settings/settings.ts'
import { ADMIN_TOKEN, captureLog, defaults, ruleFile } from '../service.ts'
import { type GrpcClient, grpcClient } from './client.ts'

export const STACK_NAMES: readonly GrpcStack[] = GRPC_STACKS

export type GrpcService = {
  /** Address of the HTTP API. */
  readonly address: string
  /** `http://127.0.0.1:port` of gRPC. */
  readonly grpcUrl: string
  readonly metrics: Metrics
  readonly logged: readonly Record<string, unknown>[]
  /** A client of the listener. */
  readonly client: GrpcClient
  drain(): void
  close(): Promise<void>
}

/** The complete service with its rules in a file and a gRPC listener on a free port. */
export async function serveGrpc(
  stack: GrpcStack,
  rules: string,
  settings: Partial<Settings> = {},
  closeMsMax = 500,
): Promise<GrpcService> {
  const { log, logged } = captureLog()
  const all = {
    ...{ ...defaults(), adminToken: ADMIN_TOKEN, rules: ruleFile(rules) },
    ...{ grpcPort: 0, grpcStack: stack, ...settings, port: 0 },
  }
  const server = await startServer(all, log, closeMsMax)
  onTestFinished(() => server.close())
  const { address, grpcAddress = '', metrics } = server
  const grpcUrl = `${all.tlsCert === undefined ? 'http' : 'https'}://${grpcAddress.replace('0.0.0.0', '127.0.0.1')}`
  const base = { address, grpcUrl, metrics, logged, drain: server.drain, close: server.close }
  return { ...base, client: grpcClient(grpcUrl) }
}
