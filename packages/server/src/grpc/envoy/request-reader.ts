// Reads the bytes of a RateLimitRequest.

import {
  DESCRIPTORS_MAX,
  type Descriptor,
  ENTRIES_MAX,
  type Entry,
  hitsOf,
  invalidField,
  type LimitOverride,
  type RateLimitRequest,
  requireComplete,
} from '../../envoy/rate-limit-request.ts'
import { ProtobufReader } from '../protobuf.ts'

type RawDescriptor = { -readonly [K in keyof Required<Descriptor>]: Descriptor[K] }

/** Throws REQUEST_INVALID, or ProtobufError. Unknown fields are skipped, so that newer versions of Envoy are served. */
export function readRateLimitRequest(message: Uint8Array): RateLimitRequest {
  const reader = new ProtobufReader(message)
  let domain = ''
  let hits = 0
  const raw: RawDescriptor[] = []
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) domain = reader.string()
    else if (field === 2) raw.push(descriptorIn(reader.message()))
    else if (field === 3) hits = reader.uint()
    else reader.skip()
    if (raw.length > DESCRIPTORS_MAX) throw invalidField('descriptors', raw.length, `give at most ${DESCRIPTORS_MAX}`)
  }
  // The hits of the request may come after the descriptors.
  for (const descriptor of raw) descriptor.hits = hitsOf(descriptor.ownHits, hits)
  const request = { domain, descriptors: raw, hits }
  requireComplete(request)
  return request
}

function descriptorIn(reader: ProtobufReader): RawDescriptor {
  const entries: Entry[] = []
  let limit: LimitOverride | undefined
  let ownHits: number | undefined
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) entries.push(entryIn(reader.message()))
    else if (field === 2) limit = overrideIn(reader.message())
    else if (field === 3) ownHits = wrappedIn(reader.message())
    else reader.skip()
    if (entries.length > ENTRIES_MAX) throw invalidField('entries', entries.length, `give at most ${ENTRIES_MAX}`)
  }
  return { entries, limit, hits: 0, ownHits }
}

/**
 * Envoy copies headers as they are. Invalid UTF-8 is no error, because Envoy admits a request if it gets one; values
 * that differ only in invalid bytes share a counter.
 */
function entryIn(reader: ProtobufReader): Entry {
  let key = ''
  let value = ''
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) key = reader.string()
    else if (field === 2) value = reader.lenientString()
    else reader.skip()
  }
  return { key, value }
}

function overrideIn(reader: ProtobufReader): LimitOverride {
  let requestsPerUnit = 0
  let unit = 0
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) requestsPerUnit = reader.uint()
    else if (field === 2) unit = reader.uint()
    else reader.skip()
  }
  return { requestsPerUnit, unit }
}

function wrappedIn(reader: ProtobufReader): number {
  let value = 0
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) value = reader.uint()
    else reader.skip()
  }
  return value
}
