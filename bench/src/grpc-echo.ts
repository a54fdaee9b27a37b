// Servers of the gRPC scenario: a unary method with a constant answer, on the lean stack or on bare `node:http2`.

import { createServer } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { GRPC_PATH } from './grpc-load.ts'
import { ANSWER } from './rate-limit-messages.ts'

/** The part of the stack's contract that the echo needs; the package does not export it. */
type CreateServer = (options: object) => {
  listen(address: { host: string; port: number }): Promise<{ port: number }>
}

async function lean(): Promise<number> {
  const module = new URL('../../packages/server/dist/grpc/http2/server.js', import.meta.url).href
  const { createLeanServer } = (await import(module)) as { createLeanServer: CreateServer }
  const server = createLeanServer({
    methods: [{ kind: 'unary', path: GRPC_PATH, handle: () => ANSWER }],
    limits: { messageBytesMax: 4 * 1024 * 1024, streamsMax: 1000, callsMax: 20_000, connectionsMax: 100 },
    clients: { watch: () => {}, useOf: () => ({ connections: 0, calls: 0, isCapped: false }) },
    onRefused: () => {},
    onError: (error: unknown) => {
      throw error
    },
  })
  return (await server.listen({ host: '127.0.0.1', port: 0 })).port
}

async function bare(): Promise<number> {
  const framed = Buffer.concat([Buffer.of(0, 0, 0, 0, ANSWER.length), ANSWER])
  const server = createServer({ settings: { maxConcurrentStreams: 1000 } })
  server.on('stream', (stream) => {
    stream.on('data', () => {})
    stream.on('end', () => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
      stream.end(framed)
    })
  })
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  return (server.address() as AddressInfo).port
}

const port = process.argv[2] === 'lean' ? await lean() : await bare()
process.stdout.write(`http://127.0.0.1:${port}\n`)
process.on('SIGTERM', () => process.exit(0))
