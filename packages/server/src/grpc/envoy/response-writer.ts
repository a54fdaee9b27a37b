// Writes the bytes of a RateLimitResponse, in one pass into a buffer of the exact size: nested writers would cost more
// than the decision.

import type { CurrentLimit, Header, Json, RateLimitResponse, Status } from '../../envoy/rate-limit-response.ts'
import { ProtobufWriter } from '../protobuf.ts'

/** Tags: field × 8 + wire type. */
const [CODE_TAG, STATUS_TAG, HEADER_TAG, METADATA_TAG] = [8, 18, 26, 50]
const [STATUS_LIMIT_TAG, STATUS_REMAINING_TAG, STATUS_RESET_TAG, SECONDS_TAG] = [18, 24, 34, 8]

export function writeRateLimitResponse({ code, statuses, headers, metadata }: RateLimitResponse): Uint8Array {
  const headerBytes = headers.length === 0 ? [] : headers.map(headerBytesOf)
  const metadataBytes = metadata && structBytes(metadata)
  let size = 2
  for (const status of statuses) size += fieldSize(statusSize(status))
  for (const bytes of headerBytes) size += fieldSize(bytes.length)
  if (metadataBytes !== undefined) size += fieldSize(metadataBytes.length)
  const buffer = Buffer.allocUnsafe(size)
  buffer[0] = CODE_TAG
  buffer[1] = code
  let at = 2
  for (const status of statuses) at = writeStatus(buffer, at, status)
  for (const bytes of headerBytes) at = writeBytes(buffer, at, HEADER_TAG, bytes)
  if (metadataBytes !== undefined) writeBytes(buffer, at, METADATA_TAG, metadataBytes)
  return buffer
}

function statusSize({ limit, remaining, resetSeconds }: Status): number {
  let size = 2
  if (limit !== undefined) size += fieldSize(limitBytes(limit).length)
  if (remaining > 0) size += 1 + varintSize(remaining)
  if (resetSeconds !== undefined) size += fieldSize(durationSize(resetSeconds))
  return size
}

function writeStatus(buffer: Buffer, start: number, status: Status): number {
  const { code, limit, remaining, resetSeconds } = status
  buffer[start] = STATUS_TAG
  let at = writeVarint(buffer, start + 1, statusSize(status))
  buffer[at] = CODE_TAG
  buffer[at + 1] = code
  at += 2
  if (limit !== undefined) at = writeBytes(buffer, at, STATUS_LIMIT_TAG, limitBytes(limit))
  if (remaining > 0) {
    buffer[at] = STATUS_REMAINING_TAG
    at = writeVarint(buffer, at + 1, remaining)
  }
  if (resetSeconds === undefined) return at
  buffer[at] = STATUS_RESET_TAG
  at = writeVarint(buffer, at + 1, durationSize(resetSeconds))
  if (resetSeconds === 0) return at
  buffer[at] = SECONDS_TAG
  return writeVarint(buffer, at + 1, resetSeconds)
}

function limitBytes(limit: CurrentLimit): Uint8Array {
  if (limit.encoded !== undefined) return limit.encoded
  const { requestsPerUnit, unit, name } = limit
  const writer = new ProtobufWriter().uint(1, requestsPerUnit).uint(2, unit).string(3, name)
  limit.encoded = Uint8Array.from(writer.finish()) // a copy: the writer's buffer is larger
  return limit.encoded
}

function durationSize(seconds: number): number {
  return seconds === 0 ? 0 : 1 + varintSize(seconds)
}

/** Size of a field with a length: all field numbers here fit one byte. */
function fieldSize(length: number): number {
  return 1 + varintSize(length) + length
}

function varintSize(value: number): number {
  let size = 1
  for (let rest = value; rest > 127; rest = Math.floor(rest / 128)) size += 1
  return size
}

function writeVarint(buffer: Buffer, start: number, value: number): number {
  let at = start
  let rest = value
  while (rest > 127) {
    buffer[at] = (rest % 128) | 128
    rest = Math.floor(rest / 128)
    at += 1
  }
  buffer[at] = rest
  return at + 1
}

function writeBytes(buffer: Buffer, start: number, tag: number, bytes: Uint8Array): number {
  buffer[start] = tag
  const at = writeVarint(buffer, start + 1, bytes.length)
  buffer.set(bytes, at)
  return at + bytes.length
}

function headerBytesOf({ key, value }: Header): Uint8Array {
  return new ProtobufWriter().string(1, key).string(2, value).finish()
}

/** google.protobuf.Struct: a map of fields; each entry is a message of key and value. */
function structBytes(fields: Readonly<Record<string, Json>>): Uint8Array {
  const writer = new ProtobufWriter()
  for (const [key, value] of Object.entries(fields)) {
    writer.message(1, (entry) => {
      entry.string(1, key).bytes(2, valueBytes(value), true)
    })
  }
  return writer.finish()
}

/** google.protobuf.Value, a oneof: the member that is set is written even if it has its default value. */
function valueBytes(value: Json): Uint8Array {
  const writer = new ProtobufWriter()
  if (value === null) writer.uint(1, 0, true)
  else if (typeof value === 'string') writer.string(3, value, true)
  else if (typeof value === 'boolean') writer.uint(4, value ? 1 : 0, true)
  else if (typeof value === 'number') return numberBytes(value)
  else if (isList(value)) writer.bytes(6, listBytes(value), true)
  else writer.bytes(5, structBytes(value), true)
  return writer.finish()
}

const NUMBER_TAG = 17

/** The writer omits 0, which is a value here. */
function numberBytes(value: number): Uint8Array {
  const bytes = Buffer.allocUnsafe(9)
  bytes[0] = NUMBER_TAG
  bytes.writeDoubleLE(value, 1)
  return bytes
}

function listBytes(values: readonly Json[]): Uint8Array {
  const writer = new ProtobufWriter()
  for (const value of values) writer.bytes(1, valueBytes(value), true)
  return writer.finish()
}

/** Array.isArray does not narrow readonly arrays. */
function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value)
}
