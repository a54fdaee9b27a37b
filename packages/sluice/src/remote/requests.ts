// Requests of a remote node to the service: sluice.v1.ExchangeRequest of lease.proto, written and read by hand.

import type { LimitName } from '../rules/limit-names.ts'
import type { Sliced } from '../slices.ts'
import { ProtobufReader, ProtobufWriter } from './protobuf.ts'

/** Charge kinds that a remote node may send. */
export const WIRE_KINDS = ['enforce', 'shadow', 'hold'] as const

export type WireKind = (typeof WIRE_KINDS)[number]

export type WireCharge = {
  readonly name: LimitName
  /** Facts of the key by name. */
  readonly facts: Readonly<Record<string, string>>
  /** Fingerprint of the limit that the remote node applies. */
  readonly fingerprint: string
  readonly min: number
  readonly max: number
  readonly kind: WireKind
}

/** Returns units of a lease, or settles them. */
export type WireReturn = {
  /** The lease as the service issued it. */
  readonly lease: string
  readonly units: number
  /** Units that are no longer on lease. */
  readonly settled: number
  /** Store time at which the units were spent; 0 if they were not. */
  readonly spentUs: number
  /** Time after the booking during which the return is accepted; 0: the default of the lease. */
  readonly ttlUs: number
}

export type WireRequest =
  | {
      readonly type: 'take'
      readonly charges: readonly WireCharge[]
      readonly op: string
      readonly returns: readonly WireReturn[]
    }
  | { readonly type: 'give'; readonly returns: readonly WireReturn[]; readonly op: string }
  | { readonly type: 'peek'; readonly charges: readonly WireCharge[] }
  | { readonly type: 'decide'; readonly subject: string; readonly requestId: string; readonly dryRun: boolean }
  | { readonly type: 'refund'; readonly requestId: string; readonly units: number | undefined }

const FIELDS = { take: 1, give: 2, peek: 3, decide: 4, refund: 5 } as const satisfies Record<
  WireRequest['type'],
  number
>

export function encodeRequests(requests: readonly WireRequest[]): Buffer {
  const writer = new ProtobufWriter()
  for (const request of requests) {
    writer.message(1, (outer) => outer.message(FIELDS[request.type], (nested) => writeRequest(nested, request)))
  }
  return writer.finish()
}

function writeRequest(writer: ProtobufWriter, request: WireRequest): void {
  switch (request.type) {
    case 'take':
      for (const charge of request.charges) writer.message(1, (nested) => writeCharge(nested, charge))
      writer.string(2, request.op)
      for (const one of request.returns) writer.message(3, (nested) => writeReturn(nested, one))
      break
    case 'give':
      for (const one of request.returns) writer.message(1, (nested) => writeReturn(nested, one))
      writer.string(2, request.op)
      break
    case 'peek':
      for (const charge of request.charges) writer.message(1, (nested) => writeCharge(nested, charge))
      break
    case 'decide':
      writer.string(1, request.subject).string(2, request.requestId).bool(3, request.dryRun)
      break
    case 'refund':
      writer.string(1, request.requestId)
      if (request.units !== undefined) writer.uint(2, request.units, true)
  }
}

function writeCharge(writer: ProtobufWriter, { name, facts, fingerprint, min, max, kind }: WireCharge): void {
  writer.string(1, name.ruleId).string(2, name.name)
  if (name.plan !== undefined) writer.string(3, name.plan, true)
  writer.bool(4, name.byIp)
  for (const [fact, value] of Object.entries(facts)) {
    writer.message(5, (entry) => entry.string(1, fact).string(2, value))
  }
  writer.string(6, fingerprint).uint(7, min).uint(8, max).uint(9, WIRE_KINDS.indexOf(kind))
}

function writeReturn(writer: ProtobufWriter, { lease, units, settled, spentUs, ttlUs }: WireReturn): void {
  writer.string(1, lease).uint(2, units).uint(3, settled).uint(4, spentUs).uint(5, ttlUs)
}

/**
 * Throws ProtobufError if the message is malformed. Unknown fields and requests without a known type are skipped. The
 * message must stay as it is until the work is done.
 */
export function* decodeRequests(message: Uint8Array): Sliced<WireRequest[]> {
  const requests: WireRequest[] = []
  const reader = new ProtobufReader(message)
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field !== 1) reader.skip()
    else requests.push(readRequest(reader.item()))
    yield
  }
  return requests
}

function readRequest(reader: ProtobufReader): WireRequest {
  let request: WireRequest = { type: 'give', returns: [], op: '' }
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === FIELDS.take) request = readTake(reader.message())
    else if (field === FIELDS.give) request = readGive(reader.message())
    else if (field === FIELDS.peek) request = readPeek(reader.message())
    else if (field === FIELDS.decide) request = readDecide(reader.message())
    else if (field === FIELDS.refund) request = readRefund(reader.message())
    else reader.skip()
  }
  return request
}

function readTake(reader: ProtobufReader): WireRequest {
  const charges: WireCharge[] = []
  const returns: WireReturn[] = []
  let op = ''
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) charges.push(readCharge(reader.message()))
    else if (field === 2) op = reader.string()
    else if (field === 3) returns.push(readReturn(reader.message()))
    else reader.skip()
  }
  return { type: 'take', charges, op, returns }
}

function readGive(reader: ProtobufReader): WireRequest {
  const returns: WireReturn[] = []
  let op = ''
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) returns.push(readReturn(reader.message()))
    else if (field === 2) op = reader.string()
    else reader.skip()
  }
  return { type: 'give', returns, op }
}

function readPeek(reader: ProtobufReader): WireRequest {
  const charges: WireCharge[] = []
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) charges.push(readCharge(reader.message()))
    else reader.skip()
  }
  return { type: 'peek', charges }
}

function readDecide(reader: ProtobufReader): WireRequest {
  let [subject, requestId, dryRun] = ['', '', false]
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) subject = reader.string()
    else if (field === 2) requestId = reader.string()
    else if (field === 3) dryRun = reader.bool()
    else reader.skip()
  }
  return { type: 'decide', subject, requestId, dryRun }
}

function readRefund(reader: ProtobufReader): WireRequest {
  let requestId = ''
  let units: number | undefined
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) requestId = reader.string()
    else if (field === 2) units = reader.uint()
    else reader.skip()
  }
  return { type: 'refund', requestId, units }
}

function readCharge(reader: ProtobufReader): WireCharge {
  let [ruleId, name, byIp, fingerprint, min, max, kind] = ['', '', false, '', 0, 0, 0]
  let plan: string | undefined
  const facts: Record<string, string> = {}
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) ruleId = reader.string()
    else if (field === 2) name = reader.string()
    else if (field === 3) plan = reader.string()
    else if (field === 4) byIp = reader.bool()
    else if (field === 5) readFact(reader.message(), facts)
    else if (field === 6) fingerprint = reader.string()
    else if (field === 7) min = reader.uint()
    else if (field === 8) max = reader.uint()
    else if (field === 9) kind = reader.uint()
    else reader.skip()
  }
  const limit = { ruleId, name: name === '' ? 'default' : name, plan, byIp }
  return { name: limit, facts, fingerprint, min, max, kind: WIRE_KINDS[kind] ?? 'enforce' }
}

function readFact(reader: ProtobufReader, facts: Record<string, string>): void {
  let [fact, value] = ['', '']
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) fact = reader.string()
    else if (field === 2) value = reader.string()
    else reader.skip()
  }
  Object.defineProperty(facts, fact, { value, enumerable: true, configurable: true, writable: true })
}

function readReturn(reader: ProtobufReader): WireReturn {
  let [lease, units, settled, spentUs, ttlUs] = ['', 0, 0, 0, 0]
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) lease = reader.string()
    else if (field === 2) units = reader.uint()
    else if (field === 3) settled = reader.uint()
    else if (field === 4) spentUs = reader.uint()
    else if (field === 5) ttlUs = reader.uint()
    else reader.skip()
  }
  return { lease, units, settled, spentUs, ttlUs }
}
