// Messages of envoy.service.rate_limit_quota.v3, read and written by hand.

import type { Sliced } from 'sluice'
import { ENTRIES_MAX } from '../../envoy/rate-limit-request.ts'
import { ProtobufError, type ProtobufReader, ProtobufWriter, ProtobufReader as Reader } from '../protobuf.ts'

/** Entries of a bucket id. The order of keys has no meaning. */
export type BucketId = Readonly<Record<string, string>>

export type Usage = { readonly bucketId: BucketId; readonly allowed: number; readonly denied: number }

export type Report = { readonly domain: string; readonly usages: readonly Usage[] }

/**
 * A strategy that Envoy 1.40 applies as documented: others are ignored, so that everything would pass. `tokens`: a
 * token bucket that does not refill.
 */
export type Strategy = { readonly blanket: 'allow' | 'deny' } | { readonly tokens: number }

export type Action =
  | { readonly bucketId: BucketId; readonly strategy: Strategy; readonly ttlSeconds: number }
  | { readonly bucketId: BucketId; readonly abandon: true }

/**
 * Throws ProtobufError if the message is malformed. `time_elapsed` is skipped: Envoy sends 0 or whole seconds. The
 * message must stay as it is until the work is done.
 */
export function* readReport(message: Uint8Array): Sliced<Report> {
  let domain = ''
  const usages: Usage[] = []
  const reader = new Reader(message)
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) domain = reader.string()
    else if (field === 2) usages.push(readUsage(reader.item()))
    else reader.skip()
    yield
  }
  return { domain, usages }
}

function readUsage(reader: ProtobufReader): Usage {
  let bucketId: BucketId = {}
  let [allowed, denied] = [0, 0]
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) bucketId = readBucketId(reader.message())
    else if (field === 3) allowed = reader.uint()
    else if (field === 4) denied = reader.uint()
    else reader.skip()
  }
  return { bucketId, allowed, denied }
}

function readBucketId(reader: ProtobufReader): BucketId {
  const entries: [string, string][] = []
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) entries.push(readEntry(reader.message()))
    else reader.skip()
    if (entries.length > ENTRIES_MAX) throw new ProtobufError(`bucket_id: give at most ${ENTRIES_MAX} entries`)
  }
  return Object.fromEntries(entries)
}

function readEntry(reader: ProtobufReader): [string, string] {
  let [key, value] = ['', '']
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) key = reader.string()
    else if (field === 2)
      value = reader.lenientString() // a client chooses it: an error would end the stream of all buckets
    else reader.skip()
  }
  return [key, value]
}

/** Envoy applies the actions in order. */
export function writeActions(actions: readonly Action[]): Buffer {
  const writer = new ProtobufWriter()
  for (const action of actions) {
    writer.message(1, (nested) => {
      nested.message(1, (id) => writeBucketId(id, action.bucketId))
      if ('abandon' in action) nested.message(3, () => {})
      else nested.message(2, (assignment) => writeAssignment(assignment, action.strategy, action.ttlSeconds))
    })
  }
  return writer.finish()
}

function writeBucketId(writer: ProtobufWriter, bucketId: BucketId): void {
  for (const [key, value] of Object.entries(bucketId)) {
    writer.message(1, (entry) => entry.string(1, key).string(2, value))
  }
}

function writeAssignment(writer: ProtobufWriter, strategy: Strategy, ttlSeconds: number): void {
  writer.message(2, (duration) => duration.uint(1, ttlSeconds))
  writer.message(3, (nested) => {
    if ('blanket' in strategy) nested.uint(1, strategy.blanket === 'allow' ? 0 : 1, true)
    else nested.message(3, (bucket) => writeTokenBucket(bucket, strategy))
  })
}

/** A year, in seconds: the slowest refill of Envoy, which cuts off fractions of seconds. */
const NO_REFILL_SECONDS = 31_536_000

function writeTokenBucket(writer: ProtobufWriter, { tokens }: Exclude<Strategy, { blanket: string }>): void {
  writer.uint(1, tokens)
  writer.message(2, (value) => value.uint(1, 1))
  writer.message(3, (duration) => duration.uint(1, NO_REFILL_SECONDS))
}
