// A gRPC server with echo methods, for tests. The lean stack is the default.

import { onTestFinished } from 'vitest'
import { ClientConnections } from '../../../src/access/client-connections.ts'
import { createLeanServer } from '../../../src/grpc/http2/server.ts'
import {
  type Call,
  type CreateGrpcServer,
  GrpcError,
  type GrpcServer,
  type Method,
  type StackLimits,
  type TlsOptions,
} from '../../../src/grpc/method.ts'
import { defaultSettings } from '../../../src/settings/default-settings.ts'

export const LIMITS: StackLimits = {
  messageBytesMax: 1024 * 1024,
  streamsMax: 100,
  callsMax: 10_000,
  connectionsMax: 1000,
}

export type EchoServer = {
  readonly server: GrpcServer
  readonly port: number
  /** The calls that methods have received. */
  readonly calls: Call[]
  readonly errors: unknown[]
  /** Streams of `/echo.Echo/Watch` that were cancelled; the server never ends them. */
  cancelled: number
}

type EchoOptions = {
  readonly tls?: TlsOptions
  readonly limits?: Partial<StackLimits>
  readonly maxConnectionsPerAddress?: number
  readonly methods?: Method[]
  /** Another stack with the same contract. */
  readonly create?: CreateGrpcServer
}

/** Started by the caller's hook or test, which closes it. */
export async function startEcho(options: EchoOptions = {}): Promise<EchoServer> {
  const { tls, limits = {}, methods = [], create = createLeanServer, maxConnectionsPerAddress = 1000 } = options
  const echo = { calls: [] as Call[], errors: [] as unknown[], cancelled: 0 }
  const server = create({
    methods: [...echoMethods(echo), ...methods],
    limits: { ...LIMITS, ...limits },
    tls,
    clients: new ClientConnections('grpc', { ...defaultSettings(), maxConnectionsPerAddress }, { event: () => {} }),
    onRefused: () => {},
    onError: (error) => echo.errors.push(error),
  })
  const { port } = await server.listen({ host: '127.0.0.1', port: 0 })
  return Object.assign(echo, { server, port })
}

/** As `startEcho`, until the end of the test. */
export async function echoForTest(options: EchoOptions = {}): Promise<EchoServer> {
  const echo = await startEcho(options)
  onTestFinished(() => echo.server.close(0))
  return echo
}

function echoMethods(echo: { calls: Call[]; cancelled: number }): Method[] {
  const unary = (
    name: string,
    handle: (message: Uint8Array, call: Call) => Uint8Array | Promise<Uint8Array>,
  ): Method => {
    return { kind: 'unary', path: `/echo.Echo/${name}`, handle }
  }
  return [
    unary('Now', (message, call) => {
      if (echo.calls.length < 100) echo.calls.push(call)
      return message
    }),
    unary('Later', async (message) => {
      const copy = Buffer.from(message)
      await new Promise((done) => setImmediate(done))
      return copy
    }),
    unary('Large', (message) => Buffer.alloc(Buffer.from(message).readUInt32BE(0), 'x')),
    unary('Never', () => new Promise(() => {})),
    unary('Refuse', (message) => {
      throw new GrpcError('failed_precondition', Buffer.from(message).toString())
    }),
    unary('RefuseLater', async () => {
      throw new GrpcError('unavailable', 'the store does not answer')
    }),
    unary('Defect', () => {
      throw new TypeError('secret detail')
    }),
    {
      kind: 'stream',
      path: '/echo.Echo/Stream',
      open: (_call, output) => ({
        message(message) {
          if (!output.write(Buffer.from(message))) return output.drained()
          return undefined
        },
        end: () => output.end(),
        cancel: () => {},
      }),
    },
    {
      kind: 'stream',
      path: '/echo.Echo/Watch',
      open: (_call, output) => {
        output.write(Buffer.from('watching'))
        const cancel = () => {
          echo.cancelled += 1
        }
        return { message: () => {}, end: () => {}, cancel }
      },
    },
  ]
}
