// `sluice grpc`: calls the gRPC API of a node. Needs no .proto files: reflection lists the services.

import { readFileSync } from 'node:fs'
import { CallFailed, type ClientOptions, callOnce } from '../grpc/client.ts'
import { ProtobufReader, ProtobufWriter } from '../grpc/protobuf.ts'
import { readCheckResponse, writeCheckRequest } from '../grpc/rate-limiter/client-messages.ts'
import { protocolMistake } from '../problems/protocol-mistake.ts'
import { reasonOf } from '../problems/reason.ts'
import { EXIT } from '../process/exit-codes.ts'
import { aligned } from '../text/aligned.ts'
import { escaped } from '../text/escaped.ts'
import { SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { checkText, limitRows } from './check-text.ts'
import { type Command, CommandError, defineCommand, type Flag, OUTPUT_FLAGS } from './command.ts'
import { readMethods, readServices } from './grpc-services.ts'
import { bodyOf, SUBJECT_FLAGS } from './subject-flags.ts'

const TIMEOUT_MS = 30_000
const HEALTH_NAMES = ['UNKNOWN', 'SERVING', 'NOT_SERVING', 'SERVICE_UNKNOWN']

const pemFlag = (name: string, help: string): Flag => ({ name, value: '<file>', help, isFile: true })

const CONNECTION_FLAGS: readonly Flag[] = [
  {
    name: 'url',
    value: '<url>',
    env: 'SLUICE_GRPC_URL',
    help: 'URL of the gRPC API; https for TLS.',
    fallback: 'http://127.0.0.1:8081',
    accepts: (text) => /^https?:\/\/[^@/]+\/?$/.test(text) && URL.canParse(text),
    fix: 'give a URL such as http://127.0.0.1:8081, without path, user and password',
  },
  ...SERVER_FLAGS.filter(({ name }) => name === 'token'),
  pemFlag('ca', 'CA certificates that sign the certificate of the node.'),
  pemFlag('cert', 'Client certificate, for nodes with --tls-client-ca.'),
  pemFlag('key', 'Private key of the client certificate.'),
]

export const GRPC_LIST: Command = defineCommand({
  name: 'grpc list',
  summary: 'Lists the gRPC services of a node and their methods.',
  details: 'Uses reflection.',
  positionals: [],
  flags: [...CONNECTION_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'of a node on this machine', line: 'sluice grpc list --url http://127.0.0.1:8081' }],
  run: async (given, terminal) => {
    const names = readServices(await reflect(given, new ProtobufWriter().string(7, '*').finish()))
    const services = await Promise.all(
      names.map(async (service) => {
        const answer = await reflect(given, new ProtobufWriter().string(4, service).finish())
        return { service, methods: readMethods(answer, service) }
      }),
    )
    const rows = services.flatMap(({ service, methods }) =>
      methods.map(({ name, request, response }) => [`${service}/${name}`, request, response]),
    )
    const text = aligned([['METHOD', 'REQUEST', 'RESPONSE'], ...rows]).join('\n')
    terminal.out(`${given.has('json') ? JSON.stringify(services, null, 2) : text}\n`)
    return EXIT.done
  },
})

export const GRPC_CHECK: Command = defineCommand({
  name: 'grpc check',
  summary: 'Checks whether a request is allowed, over gRPC.',
  details: 'Consumes units like any other check. Exits with 3 if the request is refused.',
  positionals: [],
  flags: [
    ...SUBJECT_FLAGS,
    { name: 'dry-run', help: 'Decide without consuming units.' },
    ...CONNECTION_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [{ does: 'on a node', line: 'sluice grpc check --user alice --method POST --path /api/v1/messages' }],
  run: async (given, terminal) => {
    const body = { ...bodyOf(given), detail: true, ...(given.has('dry-run') ? { dry_run: true } : {}) }
    const answer = readCheckResponse(await call(given, '/sluice.v1.RateLimiter/Check', writeCheckRequest(body)))
    if (given.has('json')) terminal.out(`${JSON.stringify(answer)}\n`)
    else terminal.out([checkText(answer, terminal), ...limitRows(answer.rules ?? []), ''].join('\n'))
    return answer.allowed ? EXIT.done : EXIT.negative
  },
})

export const GRPC_HEALTH: Command = defineCommand({
  name: 'grpc health',
  summary: 'Shows whether a node, or one of its gRPC services, is serving.',
  details: 'Exits with 3 if it is not serving, such as while it drains.',
  positionals: [{ name: '<service>', help: 'a service, such as sluice.v1.RateLimiter', optional: true }],
  flags: [...CONNECTION_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'the whole node', line: 'sluice grpc health' }],
  run: async (given, terminal) => {
    const [service = ''] = given.positionals
    const request = new ProtobufWriter().string(1, service).finish()
    const reader = new ProtobufReader(await call(given, '/grpc.health.v1.Health/Check', request))
    const status = HEALTH_NAMES[reader.next() === 1 ? reader.uint() : 0] ?? 'UNKNOWN'
    terminal.out(given.has('json') ? `${JSON.stringify({ service, status })}\n` : `${status}\n`)
    return status === 'SERVING' ? EXIT.done : EXIT.negative
  },
})

function reflect(given: Given, request: Uint8Array): Promise<Buffer> {
  return call(given, '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo', request)
}

async function call(given: Given, path: string, message: Uint8Array): Promise<Buffer> {
  const options = connectionOf(given)
  try {
    const [answer] = await callOnce(options, path, message)
    return answer ?? Buffer.alloc(0)
  } catch (error) {
    throw error instanceof CallFailed ? refusedCall(options.url, error) : unreachable(options.url, error)
  }
}

function connectionOf(given: Given): ClientOptions {
  const file = (name: string) => {
    const path = given.text(name)
    try {
      return path === undefined ? undefined : readFileSync(path)
    } catch (error) {
      throw new CommandError(`--${name}: give the path of a PEM file (${reasonOf(error)})`, EXIT.invalid)
    }
  }
  const files = { ca: file('ca'), cert: file('cert'), key: file('key') }
  return { url: given.text('url') ?? '', token: given.text('token'), ...files, timeoutMs: TIMEOUT_MS }
}

const EXIT_OF: Readonly<Record<string, number>> = {
  invalid_argument: EXIT.invalid,
  not_found: EXIT.invalid,
  unauthenticated: EXIT.denied,
  permission_denied: EXIT.denied,
}

function refusedCall(url: string, { status, message }: CallFailed): CommandError {
  return new CommandError(
    `${url} returned ${status.toUpperCase()}: ${escaped(message)}`,
    EXIT_OF[status] ?? EXIT.failed,
  )
}

function unreachable(url: string, error: unknown): CommandError {
  const { reason, fix } = protocolMistake(error) ?? {
    reason: reasonOf(error),
    fix: 'Is a node with --grpc-port running there? Use --url for another node.',
  }
  return new CommandError(`${url} is unreachable: ${reason}\n  ${fix}`)
}
