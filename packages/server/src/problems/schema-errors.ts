// Converts Ajv errors to field errors, one per field. The fix is in the schema itself, under `x-fix`, next to the
// constraint that it explains.

import { type FieldError, suggestion } from 'sluice'

/** Used fields of an Ajv error (with `verbose`). */
export type SchemaError = {
  readonly keyword: string
  readonly instancePath: string
  readonly params: Readonly<Record<string, unknown>>
  readonly data?: unknown
  readonly parentSchema?: Schema | undefined
  /** Set when the name of a property is invalid; an error of the keyword propertyNames follows. */
  readonly propertyName?: string
}

type Schema = { readonly 'x-fix'?: string; readonly properties?: Readonly<Record<string, Schema>> }

/** Cap on reported errors: a body can hold thousands of unknown fields. */
const FIELD_ERRORS_MAX = 20

export function schemaFieldErrors(errors: readonly SchemaError[]): FieldError[] {
  const fieldErrors = new Map<string, FieldError>()
  for (const error of errors) {
    if (error.propertyName !== undefined) continue
    const fieldError = fieldErrorOf(error)
    if (!fieldErrors.has(fieldError.field)) fieldErrors.set(fieldError.field, fieldError)
    if (fieldErrors.size === FIELD_ERRORS_MAX) break
  }
  return [...fieldErrors.values()]
}

function fieldErrorOf({ keyword, instancePath, params, data, parentSchema = {} }: SchemaError): FieldError {
  const at = fieldOf(instancePath)
  if (keyword === 'additionalProperties') {
    const name = String(params.additionalProperty)
    const known = Object.keys(parentSchema.properties ?? {})
    const hint = suggestion(name, known) || `; remove it, or use one of ${known.join(', ')}`
    return { field: join(at, name), value: valueIn(data, name), fix: `unknown field${hint}` }
  }
  if (keyword === 'required') {
    const name = String(params.missingProperty)
    return {
      field: join(at, name),
      value: undefined,
      fix: parentSchema.properties?.[name]?.['x-fix'] ?? 'add this field',
    }
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
