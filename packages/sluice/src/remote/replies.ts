// Replies of the service to a remote node: sluice.v1.ExchangeReply of lease.proto, written and read by hand.

import { ERRORS, type ErrorCode } from '../errors.ts'
import type { Sliced } from '../slices.ts'
import { type GiveResult, type Grant, POLICY_REASONS, type Short, type Source, type Taken } from '../store/store.ts'
import { ProtobufReader, ProtobufWriter } from './protobuf.ts'

const SHORTS: readonly Short[] = [false, 'now', 'never', 'stale_rules']
const SOURCES: readonly Source[] = ['store', 'lease', 'local', 'policy']
const RESULTS: readonly GiveResult[] = ['given', 'repeated', 'expired']

/** A grant, and the lease that names its units; `` if they cannot be returned. */
export type WireGrant = Pick<Grant, 'units' | 'short' | 'remaining' | 'resetAfterUs' | 'retryAfterUs' | 'delayUs'> & {
  readonly lease: string
  /** Booking time of this charge. */
  readonly nowUs: number
  readonly source: Source
  /** Longest time from the request to spending the units; 0 if none may be kept. For nodes that have no rules. */
  readonly leaseMs: number
}

export type WireTaken = Pick<Taken, 'granted' | 'nowUs' | 'source' | 'policyReason' | 'replayed'> & {
  readonly stale: boolean
  readonly grants: readonly WireGrant[]
  /** The service has to decide the whole request, because its rules differ or the key has an exception. */
  readonly asksToDecide: boolean
  /** Leases that replace the returned ones, in the order of the returns; `` where nothing is left. */
  readonly leases: readonly string[]
}

export type WireReply =
  | { readonly type: 'taken'; readonly taken: WireTaken }
  /** One result and one replacing lease per return. */
  | { readonly type: 'given'; readonly results: readonly GiveResult[]; readonly leases: readonly string[] }
  | { readonly type: 'decided'; readonly decision: string; readonly requestId: string }
  | { readonly type: 'error'; readonly code: ErrorCode; readonly message: string }

const FIELDS = { taken: 1, given: 2, decided: 3, error: 4 } as const satisfies Record<WireReply['type'], number>

export function* encodeReplies(replies: readonly WireReply[]): Sliced<Buffer> {
  const writer = new ProtobufWriter()
  for (const reply of replies) {
    writer.message(1, (outer) => outer.message(FIELDS[reply.type], (nested) => writeReply(nested, reply)))
    yield
  }
  return writer.finish()
}

function writeReply(writer: ProtobufWriter, reply: WireReply): void {
  switch (reply.type) {
    case 'taken':
      writeTaken(writer, reply.taken)
      break
    case 'given':
      for (const result of reply.results) writer.uint(1, RESULTS.indexOf(result), true)
      for (const lease of reply.leases) writer.string(2, lease, true)
      break
    case 'decided':
      writer.string(1, reply.decision).string(2, reply.requestId)
      break
    case 'error':
      writer.string(1, reply.code).string(2, reply.message)
  }
}

function writeTaken(writer: ProtobufWriter, taken: WireTaken): void {
  writer.bool(1, taken.granted).uint(2, taken.nowUs).uint(3, SOURCES.indexOf(taken.source))
  writer.bool(4, taken.replayed).bool(5, taken.stale).bool(6, taken.asksToDecide)
  for (const grant of taken.grants) {
    writer.message(7, (nested) => {
      nested.uint(1, grant.units).uint(2, SHORTS.indexOf(grant.short)).uint(3, grant.remaining)
      nested.double(4, grant.resetAfterUs).double(5, grant.retryAfterUs).double(6, grant.delayUs)
      nested.string(7, grant.lease).uint(8, grant.nowUs).uint(9, SOURCES.indexOf(grant.source))
      nested.uint(10, grant.leaseMs)
    })
  }
  for (const lease of taken.leases) writer.string(8, lease, true)
  if (taken.policyReason !== undefined) writer.string(9, taken.policyReason)
}

/** Throws ProtobufError if the message is malformed. */
export function decodeReplies(message: Uint8Array): WireReply[] {
  const replies: WireReply[] = []
  const reader = new ProtobufReader(message)
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field !== 1) reader.skip()
    else replies.push(readReply(reader.item()))
  }
  return replies
}

function readReply(reader: ProtobufReader): WireReply {
  let reply: WireReply = { type: 'error', code: 'STORE_UNAVAILABLE', message: 'the service sent an unknown reply' }
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === FIELDS.taken) reply = { type: 'taken', taken: readTaken(reader.message()) }
    else if (field === FIELDS.given) reply = readGiven(reader.message())
    else if (field === FIELDS.decided) reply = readDecided(reader.message())
    else if (field === FIELDS.error) reply = readError(reader.message())
    else reader.skip()
  }
  return reply
}

function readTaken(reader: ProtobufReader): WireTaken {
  let [granted, nowUs, source, replayed, stale, asksToDecide] = [false, 0, 0, false, false, false]
  const grants: WireGrant[] = []
  const leases: string[] = []
  let reason = ''
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) granted = reader.bool()
    else if (field === 2) nowUs = reader.uint()
    else if (field === 3) source = reader.uint()
    else if (field === 4) replayed = reader.bool()
    else if (field === 5) stale = reader.bool()
    else if (field === 6) asksToDecide = reader.bool()
    else if (field === 7) grants.push(readGrant(reader.message()))
    else if (field === 8) leases.push(reader.string())
    else if (field === 9) reason = reader.string()
    else reader.skip()
  }
  const from = SOURCES[source] ?? 'policy'
  const policyReason =
    POLICY_REASONS.find((known) => known === reason) ?? (from === 'policy' ? 'unavailable' : undefined)
  return { granted, nowUs, source: from, policyReason, replayed, stale, asksToDecide, grants, leases }
}

function readGrant(reader: ProtobufReader): WireGrant {
  let [units, short, remaining, resetAfterUs, retryAfterUs, delayUs] = [0, 0, 0, 0, 0, 0]
  let [lease, nowUs, source, leaseMs] = ['', 0, 0, 0]
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) units = reader.uint()
    else if (field === 2) short = reader.uint()
    else if (field === 3) remaining = reader.uint()
    else if (field === 4) resetAfterUs = reader.double()
    else if (field === 5) retryAfterUs = reader.double()
    else if (field === 6) delayUs = reader.double()
    else if (field === 7) lease = reader.string()
    else if (field === 8) nowUs = reader.uint()
    else if (field === 9) source = reader.uint()
    else if (field === 10) leaseMs = reader.uint()
    else reader.skip()
  }
  const times = { resetAfterUs, retryAfterUs, delayUs }
  const from = SOURCES[source] ?? 'policy'
  return { units, short: SHORTS[short] ?? 'now', remaining, ...times, lease, nowUs, source: from, leaseMs }
}

function readGiven(reader: ProtobufReader): WireReply {
  const results: GiveResult[] = []
  const leases: string[] = []
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) results.push(RESULTS[reader.uint()] ?? 'expired')
    else if (field === 2) leases.push(reader.string())
    else reader.skip()
  }
  return { type: 'given', results, leases }
}

function readDecided(reader: ProtobufReader): WireReply {
  let [decision, requestId] = ['', '']
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) decision = reader.string()
    else if (field === 2) requestId = reader.string()
    else reader.skip()
  }
  return { type: 'decided', decision, requestId }
}

function readError(reader: ProtobufReader): WireReply {
  let [code, message] = ['', '']
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) code = reader.string()
    else if (field === 2) message = reader.string()
    else reader.skip()
  }
  return { type: 'error', code: isErrorCode(code) ? code : 'STORE_UNAVAILABLE', message }
}

function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code)
}
