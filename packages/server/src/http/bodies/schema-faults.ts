// What a JSON schema found wrong, in our words. The fix stands in the schema itself, under `x-fix`, so that whoever
// changes what is allowed sees what people are told; one fault per field, however many keywords failed.

import { type Fault, suggestion } from 'sluice'

/** The part of an Ajv error (with `verbose`) that is used. */
export type SchemaError = {
  readonly keyword: string
  readonly instancePath: string
  readonly params: Readonly<Record<string, unknown>>
  readonly data?: unknown
  readonly parentSchema?: Schema | undefined
  /** Set where the name of a property is what is wrong; an error of the keyword propertyNames follows. */
  readonly propertyName?: string
}

type Schema = { readonly 'x-fix'?: string; readonly properties?: Readonly<Record<string, Schema>> }

/** Nobody reads more, and a body can hold thousands of unknown fields. */
const FAULTS_MAX = 20

export function schemaFaults(errors: readonly SchemaError[]): Fault[] {
  const faults = new Map<string, Fault>()
  for (const error of errors) {
    if (error.propertyName !== undefined) continue
    const fault = faultOf(error)
    if (!faults.has(fault.field)) faults.set(fault.field, fault)
    if (faults.size === FAULTS_MAX) break
  }
  return [...faults.values()]
}

function faultOf({ keyword, instancePath, params, data, parentSchema = {} }: SchemaError): Fault {
  const at = fieldOf(instancePath)
  if (keyword === 'additionalProperties') {
    const name = String(params.additionalProperty)
    const known = Object.keys(parentSchema.properties ?? {})
    const hint = suggestion(name, known) || `; remove it, or use one of ${known.join(', ')}`
    return { field: join(at, name), value: valueIn(data, name), fix: `unknown field${hint}` }
  }
  if (keyword === 'required') {
    const name = String(params.missingProperty)
    return { field: join(at, name), value: undefined, fix: parentSchema.properties?.[name]?.['x-fix'] ?? 'give it' }
  }
  if (keyword === 'propertyNames') {
    const name = String(params.propertyName)
    return { field: join(at, name), value: valueIn(data, name), fix: NAME_FIX }
  }
  return { field: at || 'body', value: data, fix: parentSchema['x-fix'] ?? 'send a JSON object' }
}

export const NAME_FIX = 'use a name of 1 to 128 characters without control characters, other than "__proto__"'

/** `/attributes/a~1b` → `attributes.a/b`. */
function fieldOf(instancePath: string): string {
  const steps = instancePath.split('/').slice(1)
  return steps.map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~')).join('.')
}

function join(at: string, name: string): string {
  return at === '' ? name : `${at}.${name}`
}

function valueIn(data: unknown, name: string): unknown {
  return typeof data === 'object' && data !== null ? Object.getOwnPropertyDescriptor(data, name)?.value : undefined
}
