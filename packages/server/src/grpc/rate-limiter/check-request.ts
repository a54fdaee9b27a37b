// Reads CheckRequest and ExplainRequest as the body of a check. The schema of the HTTP API validates both, so both APIs
// accept the same requests.

import type { FieldError } from 'sluice'
import type { CheckBody } from '../../checks/check-body.ts'
import { CHECK_BODY, REFUND_BODY, type Schema } from '../../http/bodies/schemas.ts'
import { invalidRequest, ProblemError } from '../../problems/problem.ts'
import { NAME_FIX } from '../../problems/schema-errors.ts'
import type { ProtobufReader } from '../protobuf.ts'

type Attribute = string | number | boolean

/** Fields of a check; undefined: not sent. */
export class CheckFields {
  client_id: string | undefined = undefined
  endpoint: string | undefined = undefined
  method: string | undefined = undefined
  ip_address: string | undefined = undefined
  api_key: string | undefined = undefined
  tenant: string | undefined = undefined
  plan: string | undefined = undefined
  cost: number | undefined = undefined
  bypass_token: string | undefined = undefined
  attributes: Map<string, Attribute | undefined> | undefined = undefined
  dry_run = false
  request_id: string | undefined = undefined
  detail = false
}

type TextField = 'client_id' | 'endpoint' | 'method' | 'ip_address' | 'api_key' | 'tenant' | 'plan' | 'bypass_token'

const TEXT_FIELDS: Readonly<Record<number, TextField>> = {
  1: 'client_id',
  2: 'endpoint',
  3: 'method',
  4: 'ip_address',
  5: 'api_key',
  6: 'tenant',
  7: 'plan',
  9: 'bypass_token',
}

/** Reads the fields of a message. Throws ProtobufError. */
export function readCheck(reader: ProtobufReader): CheckFields {
  const fields = new CheckFields()
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    const name = TEXT_FIELDS[field]
    if (name !== undefined) fields[name] = reader.string() || undefined
    else if (field === 8) fields.cost = reader.int()
    else if (field === 10) readAttribute(reader.message(), fields)
    else if (field === 11) fields.dry_run = reader.bool()
    else if (field === 12) fields.request_id = reader.string() || undefined
    else if (field === 13) fields.detail = reader.bool()
    else reader.skip()
  }
  return fields
}

function readAttribute(entry: ProtobufReader, fields: CheckFields): void {
  let name = ''
  let value: Attribute | undefined
  for (let field = entry.next(); field !== 0; field = entry.next()) {
    if (field === 1) name = entry.string()
    else if (field === 2) value = readValue(entry.message())
    else entry.skip()
  }
  fields.attributes ??= new Map()
  fields.attributes.set(name, value)
}

function readValue(reader: ProtobufReader): Attribute | undefined {
  let value: Attribute | undefined
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) value = reader.string()
    else if (field === 2) value = reader.double()
    else if (field === 3) value = reader.bool()
    else reader.skip()
  }
  return value
}

/** The body of a check. Throws REQUEST_INVALID with every mistake. */
export function bodyOf(fields: CheckFields): CheckBody {
  const fieldErrors: FieldError[] = []
  for (const [name, isValid] of SCALARS) {
    const value = fields[name]
    if (value !== undefined && !isValid(value)) fieldErrors.push({ field: name, value, fix: fixOf(name) })
  }
  const attributes = fields.attributes && attributesOf(fields.attributes, fieldErrors)
  if (fieldErrors.length > 0) throw new ProblemError(invalidRequest(fieldErrors))
  // Absent fields are undefined; the controller makes no difference between the two.
  return (attributes === undefined ? fields : { ...fields, attributes }) as CheckBody
}

type IsValid = (value: string | number) => boolean
type Scalar = TextField | 'cost' | 'request_id'

const SCALARS: readonly (readonly [Scalar, IsValid])[] = [...Object.values(TEXT_FIELDS), 'cost', 'request_id'].map(
  (name) => [name as Scalar, validatorOf(CHECK_BODY.properties[name] ?? {})] as const,
)

function fixOf(name: string): string {
  return String(CHECK_BODY.properties[name]?.['x-fix'])
}

/** Validates a text or a whole number by the keywords of its schema. */
export function validatorOf(schema: Schema): IsValid {
  const {
    pattern,
    maxLength = Number.POSITIVE_INFINITY,
    minimum,
    maximum,
  } = schema as {
    pattern?: string
    maxLength?: number
    minimum?: number
    maximum?: number
  }
  const expression = pattern === undefined ? undefined : new RegExp(pattern, 'u')
  return (value) => {
    if (typeof value === 'number')
      return Number.isSafeInteger(value) && value >= (minimum ?? value) && value <= (maximum ?? value)
    // A character is at most two code units: a text of 4 MiB is not split.
    const isShort = value.length <= maxLength || (value.length <= 2 * maxLength && [...value].length <= maxLength)
    return isShort && (expression === undefined || expression.test(value))
  }
}

type AttributesSchema = {
  readonly maxProperties: number
  readonly propertyNames: Schema
  readonly additionalProperties: Schema
}

// The schema of attributes has these keywords.
const ATTRIBUTES = CHECK_BODY.properties.attributes as unknown as AttributesSchema
const isAttributeName = validatorOf(ATTRIBUTES.propertyNames)
const isAttributeText = validatorOf(ATTRIBUTES.additionalProperties)
const VALUE_FIX = String(ATTRIBUTES.additionalProperties['x-fix'])

function attributesOf(
  sent: ReadonlyMap<string, Attribute | undefined>,
  fieldErrors: FieldError[],
): Readonly<Record<string, Attribute>> {
  if (sent.size > ATTRIBUTES.maxProperties)
    fieldErrors.push({ field: 'attributes', value: `${sent.size} names`, fix: fixOf('attributes') })
  const attributes: Record<string, Attribute> = {}
  for (const [name, value] of sent) {
    const field = `attributes.${name}`
    if (fieldErrors.length >= FIELD_ERRORS_MAX) break
    if (!isAttributeName(name)) fieldErrors.push({ field, value, fix: NAME_FIX })
    else if (!isAttribute(value)) fieldErrors.push({ field, value, fix: VALUE_FIX })
    else attributes[name] = value
  }
  return attributes
}

const FIELD_ERRORS_MAX = 20

function isAttribute(value: Attribute | undefined): value is Attribute {
  if (typeof value === 'string') return isAttributeText(value)
  return typeof value === 'number' ? Number.isFinite(value) : value !== undefined
}

export type RefundFields = { readonly request_id: string; readonly units?: number }

/** Throws REQUEST_INVALID with every mistake. */
export function readRefund(reader: ProtobufReader): RefundFields {
  let requestId = ''
  let units: number | undefined
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) requestId = reader.string()
    else if (field === 2) units = reader.int()
    else reader.skip()
  }
  const fieldErrors: FieldError[] = []
  const sent = { request_id: requestId, ...(units === undefined ? {} : { units }) }
  for (const [name, value] of Object.entries(sent)) {
    const schema = REFUND_PROPERTIES[name] ?? {}
    if (!validatorOf(schema)(value)) fieldErrors.push({ field: name, value, fix: String(schema['x-fix']) })
  }
  if (fieldErrors.length > 0) throw new ProblemError(invalidRequest(fieldErrors))
  return sent
}

const REFUND_PROPERTIES = REFUND_BODY.properties as Readonly<Record<string, Schema>>
