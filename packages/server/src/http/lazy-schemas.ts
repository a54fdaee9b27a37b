// Compiles the schema of a route at the first request that needs it. Compiling the schemas of all routes was the
// largest part of the start-up time, and a node serves few of them. An invalid schema fails the first request instead
// of the start: the tests of the routes cover that.

import { createRequire } from 'node:module'
import type { FastifyServerOptions } from 'fastify'

/** A validator; `errors` describes the last value that it rejected. */
type Validator = { (value: unknown): unknown; errors?: unknown }
type Serializer = (value: unknown) => string
type Compile<Compiled> = (route: unknown) => Compiled
type Build<Compiled> = (sharedSchemas: unknown, options: unknown) => Compile<Compiled>

const require = createRequire(import.meta.url)

/** The compilers of Fastify, loaded at the first use. */
const loadValidators = once(() => (require('@fastify/ajv-compiler') as () => Build<Validator>)())
const loadSerializers = once(() => (require('@fastify/fast-json-stringify-compiler') as () => Build<Serializer>)())

/** A value with more parts is only told its first error: each error is an object, and a body may have 100,000. */
const PARTS_MAX = 10_000

/** The first validator stops at the first error; the second, which reports all of them, sees invalid values only. */
const buildValidator: Build<Validator> = (sharedSchemas, options) => {
  const compilers = [false, true].map((allErrors) => {
    return once(() => loadValidators()(sharedSchemas, withAllErrors(options, allErrors)))
  })
  return (route) => {
    const [first, all] = compilers.map((compiler) => once(() => compiler()(route))) as [
      () => Validator,
      () => Validator,
    ]
    const validate: Validator = (value) => {
      if (first()(value)) return true
      const reporting = hasMoreParts(value, PARTS_MAX) ? first() : all()
      reporting(value)
      validate.errors = reporting.errors
      return false
    }
    return validate
  }
}

function withAllErrors(options: unknown, allErrors: boolean): object {
  const { customOptions } = options as { readonly customOptions: object }
  return { ...(options as object), customOptions: { ...customOptions, allErrors } }
}

/** Whether a value has more fields and items than this, at any depth. */
function hasMoreParts(value: unknown, most: number): boolean {
  const open: unknown[] = [value]
  for (let left = most; open.length > 0; left -= 1) {
    if (left < 0) return true
    const next = open.pop()
    if (typeof next !== 'object' || next === null) continue
    const parts = Object.values(next)
    if (parts.length > left) return true
    for (const part of parts) open.push(part)
  }
  return false
}

const buildSerializer: Build<Serializer> = (sharedSchemas, options) => {
  const compiler = once(() => loadSerializers()(sharedSchemas, options))
  return (route) => {
    const compiled = once(() => compiler()(route))
    return (value) => compiled()(value)
  }
}

type SchemaController = NonNullable<FastifyServerOptions['schemaController']>

/** The types of Fastify name classes of Ajv and schemas, which this file only passes on. */
export const LAZY_SCHEMAS: SchemaController = {
  compilersFactory: { buildValidator, buildSerializer } as unknown as NonNullable<SchemaController['compilersFactory']>,
}

function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined
  return () => {
    made ??= { value: make() }
    return made.value
  }
}
