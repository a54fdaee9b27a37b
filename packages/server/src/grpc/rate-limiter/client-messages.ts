// The client side of Check: writes CheckRequest, and reads CheckResponse as the JSON answer of the HTTP API.

import type { CheckAnswer, PlainOutcome } from '../../checks/answer.ts'
import type { CheckBody } from '../../checks/check-body.ts'
import { ProtobufReader, ProtobufWriter } from '../protobuf.ts'

export function writeCheckRequest(body: CheckBody): Uint8Array {
  const writer = new ProtobufWriter()
  const texts = [body.client_id, body.endpoint, body.method, body.ip_address, body.api_key, body.tenant, body.plan]
  for (const [index, text = ''] of texts.entries()) writer.string(index + 1, text)
  if (body.cost !== undefined) writer.uint(8, body.cost, true)
  writer.string(9, body.bypass_token ?? '')
  for (const [name, value] of Object.entries(body.attributes ?? {})) {
    writer.message(10, (entry) =>
      entry.string(1, name).message(2, (nested) => {
        if (typeof value === 'string') nested.string(1, value, true)
        else if (typeof value === 'number') nested.double(2, value, true)
        else nested.bool(3, value, true)
      }),
    )
  }
  writer
    .bool(11, body.dry_run ?? false)
    .string(12, body.request_id ?? '')
    .bool(13, body.detail ?? false)
  return writer.finish()
}

type Fields = Record<string, unknown>
type Read = (reader: ProtobufReader) => unknown
type Entry = readonly [name: string, read: Read]

const int: Read = (reader) => reader.int()
const text: Read = (reader) => reader.string()
const flag: Read = (reader) => reader.bool()

const RESPONSE: Readonly<Record<number, Entry>> = {
  1: ['allowed', flag],
  2: ['remaining', int],
  3: ['limit', int],
  4: ['reset_at', int],
  5: ['retry_after', int],
  6: ['retry_after_ms', int],
  7: ['rule_id', text],
  8: ['violated_rule', text],
  9: ['violated_tier', text],
  10: ['violated_limit', text],
  11: ['delay_ms', int],
  12: ['request_id', text],
  13: ['source', text],
  14: ['stale', flag],
  15: ['status', int],
  16: ['override_id', text],
}

const OUTCOME: Readonly<Record<number, Entry>> = {
  1: ['rule_id', text],
  2: ['name', text],
  3: ['scope', text],
  4: ['algorithm', text],
  5: ['mode', text],
  6: ['allowed', flag],
  7: ['limit', int],
  8: ['burst', int],
  9: ['remaining', int],
  10: ['window_ms', int],
  11: ['cost', int],
  12: ['reset_after_ms', int],
  13: ['retry_after_ms', int],
  14: ['delay_ms', int],
  15: ['full_after_ms', int],
}

export function readCheckResponse(message: Uint8Array): CheckAnswer {
  const answer: Fields = { allowed: false, remaining: null, limit: null, reset_at: null }
  const rules: PlainOutcome[] = []
  readFields(new ProtobufReader(message), RESPONSE, answer, (field, reader) => {
    if (field === 17) readDetail(reader.message(), answer, rules)
    else reader.skip()
  })
  if (answer.allowed === false) answer.retry_after ??= null
  if (rules.length > 0) answer.rules = rules
  return answer as CheckAnswer // fields of the message
}

function readDetail(detail: ProtobufReader, answer: Fields, rules: PlainOutcome[]): void {
  const known: Readonly<Record<number, Entry>> = { 1: ['source', text], 2: ['version', int], 6: ['full_at', int] }
  const headers: Record<string, string> = {}
  readFields(detail, known, answer, (field, reader) => {
    if (field === 3) rules.push(readOutcome(reader.message()))
    else if (field === 5) readHeader(reader.message(), headers)
    else reader.skip()
  })
  answer.headers = headers
}

function readOutcome(reader: ProtobufReader): PlainOutcome {
  const outcome: Fields = { allowed: false, limit: 0, remaining: 0, delay_ms: 0 }
  readFields(reader, OUTCOME, outcome, (_field, unknown) => unknown.skip())
  return outcome as PlainOutcome // fields of the message
}

function readHeader(reader: ProtobufReader, headers: Record<string, string>): void {
  const entry: { name?: string; value?: string } = {}
  const known: Readonly<Record<number, Entry>> = { 1: ['name', text], 2: ['value', text] }
  readFields(reader, known, entry, (_field, unknown) => unknown.skip())
  headers[entry.name ?? ''] = entry.value ?? ''
}

function readFields(
  reader: ProtobufReader,
  known: Readonly<Record<number, Entry>>,
  target: Fields,
  other: (field: number, reader: ProtobufReader) => void,
): void {
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    const entry = known[field]
    if (entry === undefined) other(field, reader)
    else target[entry[0]] = entry[1](reader)
  }
}
