// Settings of the gRPC listener. TLS, tokens and `--checks` are those of the HTTP API.

import { durationMs } from '../text/duration.ts'
import { readInteger, type Setting } from './setting.ts'

/** The stacks that serve gRPC, the default first. */
export const GRPC_STACKS = ['lean', 'node'] as const
export type GrpcStack = (typeof GRPC_STACKS)[number]

export type GrpcSettings = {
  /** Undefined: no gRPC. */
  readonly grpcPort: number | undefined
  readonly grpcHost: string
  /** Undefined: the default. */
  readonly grpcStack: GrpcStack | undefined
  readonly grpcMaxStreams: number
  readonly grpcMaxCalls: number
  readonly grpcMaxMessageBytes: number
  readonly grpcMaxConnections: number
  /** Undefined: connections may have any age. */
  readonly grpcMaxConnectionAgeMs: number | undefined
  readonly grpcMaxConnectionAgeGraceMs: number
}

/** Longer ones do not fit a timer of Node.js. */
const AGE_MS_MAX = 20 * 86_400_000
const AGE_FIX = 'give a whole number and a unit, s, m, h or d, such as 30m: up to 20d'

const STACK_FIX = `use ${GRPC_STACKS.join(' or ')}`

export const GRPC_SETTINGS: { readonly [K in keyof GrpcSettings]: Setting<GrpcSettings[K]> } = {
  grpcPort: {
    flag: 'grpc-port',
    env: 'SLUICE_GRPC_PORT',
    value: '<port>',
    help: 'Port of the gRPC API; 0 picks a free one.',
    fallback: () => undefined,
    shownFallback: 'no gRPC',
    read: (text) => readInteger(text, 0, 65_535),
    fix: 'give a port from 0 to 65535',
  },
  grpcHost: {
    flag: 'grpc-host',
    env: 'SLUICE_GRPC_HOST',
    value: '<address>',
    help: 'Address of the gRPC API. Other than on loopback, calls need a token or a client certificate.',
    fallback: () => '127.0.0.1',
    shownFallback: '127.0.0.1',
    read: (text) => (/^[\w.:%-]+$/.test(text) ? text : undefined),
    fix: 'give a host name or an address, such as 127.0.0.1',
    needs: 'grpcPort',
  },
  grpcStack: {
    flag: 'grpc-stack',
    env: 'SLUICE_GRPC_STACK',
    value: GRPC_STACKS.join('|'),
    help: 'HTTP/2 implementation of the gRPC API.',
    fallback: () => undefined,
    shownFallback: GRPC_STACKS[0],
    read: (text) => GRPC_STACKS.find((stack) => stack === text),
    fix: STACK_FIX,
    needs: 'grpcPort',
  },
  grpcMaxStreams: {
    flag: 'grpc-max-streams',
    env: 'SLUICE_GRPC_MAX_STREAMS',
    value: '<number>',
    help: 'Cap on concurrent calls of one gRPC connection; clients queue further ones.',
    fallback: () => 1000,
    shownFallback: '1000',
    read: (text) => readInteger(text, 1, 100_000),
    fix: 'give a whole number from 1 to 100000',
    needs: 'grpcPort',
  },
  grpcMaxCalls: {
    flag: 'grpc-max-calls',
    env: 'SLUICE_GRPC_MAX_CALLS',
    value: '<number>',
    help:
      'Cap on concurrent gRPC calls of one process, streams included; further ones get REFUSED_STREAM. ' +
      'A tenth is kept for addresses that hold less than that.',
    fallback: () => 20_000,
    shownFallback: '20000',
    read: (text) => readInteger(text, 1, 1_000_000),
    fix: 'give a whole number from 1 to 1000000',
    needs: 'grpcPort',
  },
  grpcMaxMessageBytes: {
    flag: 'grpc-max-message-bytes',
    env: 'SLUICE_GRPC_MAX_MESSAGE_BYTES',
    value: '<bytes>',
    help: 'Cap on the size of a gRPC message, also of a decompressed one; larger ones get RESOURCE_EXHAUSTED.',
    fallback: () => 4_194_304,
    shownFallback: '4194304',
    read: (text) => readInteger(text, 1024, 67_108_864),
    fix: 'give bytes from 1024 to 67108864',
    needs: 'grpcPort',
  },
  grpcMaxConnections: {
    flag: 'grpc-max-connections',
    env: 'SLUICE_GRPC_MAX_CONNECTIONS',
    value: '<number>',
    help: 'Cap on gRPC connections of one process; further ones are closed on arrival.',
    fallback: () => 10_000,
    shownFallback: '10000',
    read: (text) => readInteger(text, 1, 1_000_000),
    fix: 'give a whole number from 1 to 1000000',
    needs: 'grpcPort',
  },
  grpcMaxConnectionAgeMs: {
    flag: 'grpc-max-connection-age',
    env: 'SLUICE_GRPC_MAX_CONNECTION_AGE',
    value: '<duration>',
    help:
      'Age, ±10 %, at which a gRPC connection gets GOAWAY: its client connects again, ' +
      'such as to another node behind the load balancer.',
    fallback: () => undefined,
    shownFallback: 'no limit',
    read: readAgeMs,
    fix: AGE_FIX,
    needs: 'grpcPort',
  },
  grpcMaxConnectionAgeGraceMs: {
    flag: 'grpc-max-connection-age-grace',
    env: 'SLUICE_GRPC_MAX_CONNECTION_AGE_GRACE',
    value: '<duration>',
    help: 'Time from that GOAWAY until the connection is closed with its calls and streams.',
    fallback: () => 3_600_000,
    shownFallback: '1h',
    read: readAgeMs,
    fix: AGE_FIX,
    needs: 'grpcMaxConnectionAgeMs',
  },
}

function readAgeMs(text: string): number | undefined {
  const ms = durationMs(text)
  return ms === undefined || ms > AGE_MS_MAX ? undefined : ms
}
