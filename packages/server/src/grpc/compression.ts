// From bytes of the wire to the message that a handler reads, on both stacks: decompresses it (`grpc-encoding: gzip`),
// and spreads messages that arrive together over turns of the event loop (docs/decisions/0045-short-turns.md). A few
// bytes of gzip can contain a large message, and much gzip can contain nothing: only gzip that is small on both sides
// is decompressed at once, the rest in a thread, one at a time and with a cap on those that wait.

import { setImmediate } from 'node:timers/promises'
import { promisify } from 'node:util'
import { gunzip, gunzipSync } from 'node:zlib'
import type { MaybePromise } from 'sluice'
import { FairQueue } from '../serial-queue.ts'
import { GrpcError, type Peer } from './method.ts'

/** Encodings that are accepted, for `grpc-accept-encoding`. */
export const ENCODINGS = 'identity,gzip'

/** Gzip of this size costs up to 0.3 ms, when it contains nothing; longer gzip takes the thread. */
const SYNC_INPUT_BYTES_MAX = 4 * 1024
/** Gzip that contains more takes the thread, once this much is decompressed. */
const SYNC_OUTPUT_BYTES_MAX = 64 * 1024
const WAITING_BYTES_MAX = 32 * 1024 * 1024
/** Messages up to this size are read when they arrive. */
const SMALL_BYTES_MAX = 4 * 1024
/** Bytes of other messages that one turn reads, unless it reads a single one: as many fields as one may have. */
const TURN_BYTES_MAX = 256 * 1024
/** Cost of any gzip in a turn, beside what it contains. */
const GZIP_TURN_BYTES = 2 * 1024

const inThread = promisify(gunzip)
const threadQueue = new FairQueue<Peer>()
const turnQueue = new FairQueue<Peer>()
let waitingBytes = 0
let turnBytes = 0

/** Returns the error for a message with this flag byte, if it is refused. `encoding`: value of `grpc-encoding`. */
export function flagProblem(flag: number, encoding: string | undefined): GrpcError | undefined {
  if (flag === 0 || (flag === 1 && encoding === 'gzip')) return undefined
  if (flag !== 1) return new GrpcError('internal', `malformed message: its first byte is ${flag}`)
  if (encoding === undefined || encoding === 'identity')
    return new GrpcError('internal', 'a message is compressed, but the call has no grpc-encoding: send gzip')
  return new GrpcError('unimplemented', `grpc-encoding ${encoding.slice(0, 40)} is not supported: use gzip`)
}

/**
 * The message as a handler reads it: at once if it is small, else in a turn with room for it. Connections take turns.
 * Throws or rejects with GrpcError. The bytes must stay as they are until then.
 */
export function wholeMessage(
  bytes: Uint8Array,
  isCompressed: boolean,
  bytesMax: number,
  peer: Peer,
): MaybePromise<Uint8Array> {
  if (isCompressed) return decompressed(bytes, bytesMax, peer)
  if (bytes.length <= SMALL_BYTES_MAX || hasTurn(bytes.length)) return bytes
  return inTurn(bytes, peer)
}

function decompressed(bytes: Uint8Array, bytesMax: number, peer: Peer): MaybePromise<Uint8Array> {
  if (bytes.length <= SYNC_INPUT_BYTES_MAX && hasTurn(GZIP_TURN_BYTES)) {
    const maxOutputLength = Math.min(SYNC_OUTPUT_BYTES_MAX, bytesMax)
    try {
      const whole = gunzipSync(bytes, { maxOutputLength })
      turnBytes += whole.length
      return whole
    } catch (error) {
      if (!isTooLarge(error) || maxOutputLength === bytesMax) throw problemOf(error, bytesMax)
      turnBytes += maxOutputLength
    }
  }
  if (waitingBytes > WAITING_BYTES_MAX) throw new GrpcError('resource_exhausted', 'too many compressed messages wait')
  waitingBytes += bytes.length
  return threadQueue
    .run(peer, async () => {
      const whole = await inThread(bytes, { maxOutputLength: bytesMax, chunkSize: SYNC_OUTPUT_BYTES_MAX })
      return whole.length <= SMALL_BYTES_MAX ? whole : inTurn(whole, peer)
    })
    .catch((error: unknown) => {
      throw problemOf(error, bytesMax)
    })
    .finally(() => {
      waitingBytes -= bytes.length
    })
}

function inTurn(bytes: Uint8Array, peer: Peer): Promise<Uint8Array> {
  return turnQueue.run(peer, async () => {
    do await setImmediate()
    while (!hasTurn(bytes.length))
    return bytes
  })
}

/** Whether this turn of the event loop has room for so many bytes; then they are counted. */
function hasTurn(bytes: number): boolean {
  if (turnBytes > 0 && turnBytes + bytes > TURN_BYTES_MAX) return false
  if (turnBytes === 0) void setImmediate().then(endTurn)
  turnBytes += bytes
  return true
}

function endTurn(): void {
  turnBytes = 0
}

function isTooLarge(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE'
}

function problemOf(error: unknown, bytesMax: number): GrpcError {
  if (isTooLarge(error))
    return new GrpcError(
      'resource_exhausted',
      `decompressed message is too large: at most ${bytesMax} bytes are accepted`,
    )
  return new GrpcError('internal', 'malformed message: it is not valid gzip')
}
