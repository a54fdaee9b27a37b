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

const buildValidator: Build<Validator> = (sharedSchemas, options) => {
  const compiler = once(() => loadValidators()(sharedSchemas, options))
  return (route) => {
    const compiled = once(() => compiler()(route))
    const validate: Validator = (value) => {
      const result = compiled()(value)
      validate.errors = compiled().errors
      return result
    }
    return validate
  }
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
