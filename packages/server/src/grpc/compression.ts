// Compressed messages of both stacks: `grpc-encoding: gzip`. A message must not hold the event loop for long
// (docs/decisions/0045-short-turns.md), and gzip can be built to take 70 µs per KiB: a short message is decompressed at
// once, longer ones in a thread, one at a time and with a cap on those that wait.

import { promisify } from 'node:util'
import { gunzip, gunzipSync } from 'node:zlib'
import type { MaybePromise } from 'sluice'
import { SerialQueue } from '../serial-queue.ts'
import { GrpcError } from './method.ts'

/** Encodings that are accepted, for `grpc-accept-encoding`. */
export const ENCODINGS = 'identity,gzip'

/** Costs up to 5 ms, and as much again for what it contains. */
const SYNC_BYTES_MAX = 64 * 1024
const WAITING_BYTES_MAX = 32 * 1024 * 1024

const inThread = promisify(gunzip)
const queue = new SerialQueue()
let waitingBytes = 0

/** Returns the error for a message with this flag byte, if it is refused. `encoding`: value of `grpc-encoding`. */
export function flagProblem(flag: number, encoding: string | undefined): GrpcError | undefined {
  if (flag === 0 || (flag === 1 && encoding === 'gzip')) return undefined
  if (flag !== 1) return new GrpcError('internal', `malformed message: its first byte is ${flag}`)
  if (encoding === undefined || encoding === 'identity')
    return new GrpcError('internal', 'a message is compressed, but the call has no grpc-encoding: send gzip')
  return new GrpcError('unimplemented', `grpc-encoding ${encoding.slice(0, 40)} is not supported: use gzip`)
}

/** The message that gzip contains. Throws or rejects with GrpcError. The bytes may change once this returns. */
export function decompressed(bytes: Uint8Array, bytesMax: number): MaybePromise<Uint8Array> {
  const options = { maxOutputLength: bytesMax, chunkSize: SYNC_BYTES_MAX }
  if (bytes.length <= SYNC_BYTES_MAX) {
    try {
      return gunzipSync(bytes, options)
    } catch (error) {
      throw problemOf(error, bytesMax)
    }
  }
  if (waitingBytes > WAITING_BYTES_MAX) throw new GrpcError('resource_exhausted', 'too many compressed messages wait')
  const copy = Buffer.from(bytes)
  waitingBytes += copy.length
  return queue
    .run(() => inThread(copy, options))
    .catch((error: unknown) => {
      throw problemOf(error, bytesMax)
    })
    .finally(() => {
      waitingBytes -= copy.length
    })
}

function problemOf(error: unknown, bytesMax: number): GrpcError {
  if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE')
    return new GrpcError(
      'resource_exhausted',
      `decompressed message is too large: at most ${bytesMax} bytes are accepted`,
    )
  return new GrpcError('internal', 'malformed message: it is not valid gzip')
}
