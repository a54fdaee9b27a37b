// No input of any route is an internal error: hostile texts and values in every parameter, field and body of every
// operation that /openapi.json lists.

import { expect, onTestFinished, test } from 'vitest'
import { openDatabase } from '../src/db/open-database.ts'
import { usePostgres } from './databases.ts'
import { ADMIN_TOKEN, type App, serveDatabase } from './service.ts'

const DEPTH = 25_000
/** JSON texts. Deep ones are texts because JSON.stringify cannot write them. */
const VALUES: readonly string[] = [
  `${'['.repeat(DEPTH)}${']'.repeat(DEPTH)}`,
  `${'{"a":'.repeat(8000)}1${'}'.repeat(8000)}`,
  ...['', '['.repeat(DEPTH), '*'.repeat(DEPTH), '\0', '\u202e', '\ud800', '__proto__', 'constructor'].map(quoted),
  ...['../../etc/passwd', '%zz', '1e999', '0x10', "' or 1=1 --", '{a', '('].map(quoted),
  ...['null', 'true', '-1', '1e308', '9007199254740993', '{"__proto__":{"a":1}}', '[null]'],
]
const QUERIES = [
  '',
  '[',
  '['.repeat(5000),
  '\0',
  '\u009b',
  '-1',
  '1e9',
  '0x10',
  '010',
  '99999999999999999999',
  '__proto__',
  '%zz',
]

type Schema = {
  readonly properties?: Readonly<Record<string, Schema>>
  readonly items?: Schema
  readonly examples?: readonly unknown[]
}
type Parameter = { readonly name: string; readonly in: string; readonly schema: { readonly examples?: unknown[] } }
type Operation = {
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: {
    readonly content: Readonly<Record<string, { schema: Schema; example?: unknown; examples?: object }>>
  }
}
type Document = { readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>> }
type Request = { readonly method: string; readonly path: string; readonly body?: string; readonly type?: string }

const HOLE = '"the hostile value"'

function quoted(text: string): string {
  return JSON.stringify(text)
}

/** The example with one field at a time replaced, at every depth; fields without an example are added. */
function holed(schema: Schema, example: unknown): string[] {
  const known = typeof example === 'object' && example !== null && !Array.isArray(example) ? example : {}
  const names = [...new Set([...Object.keys(schema.properties ?? {}), ...Object.keys(known)])]
  const fields = names.flatMap((name) => {
    const inner = schema.properties?.[name] ?? {}
    const value = (known as Record<string, unknown>)[name]
    return holed(inner, value).map((text) => {
      const others = Object.entries(known).filter(([other]) => other !== name)
      const members = others.map(([other, one]) => `${quoted(other)}:${JSON.stringify(one)}`)
      return `{${[...members, `${quoted(name)}:${text}`].join(',')}}`
    })
  })
  const items = Array.isArray(example) && example.length > 0 ? holed(schema.items ?? {}, example[0]) : []
  return [HOLE, ...fields, ...items.map((text) => `[${text}]`)]
}

function requestsOf({ paths }: Document): Request[] {
  return Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).flatMap(([method, operation]) => [
      ...bodies(method, path, operation),
      ...queries(method, path, operation),
    ]),
  )
}

const SAMPLE = 'messages_per_min'

function bodies(method: string, path: string, { requestBody }: Operation): Request[] {
  const full = path.replace(/\{\w+\}/g, SAMPLE)
  return Object.entries(requestBody?.content ?? {}).flatMap(([type, { schema, example, examples }]) => {
    const first = example ?? Object.values(examples ?? {})[0]?.value ?? schema.examples?.[0] ?? {}
    return holed(schema, first).flatMap((text) =>
      VALUES.map((value) => ({ method, path: full, type, body: text.replace(HOLE, () => value) })),
    )
  })
}

function queries(method: string, path: string, { parameters = [] }: Operation): Request[] {
  return parameters.flatMap((parameter) =>
    QUERIES.map((value) => {
      const text = value === '%zz' ? value : encodeURIComponent(value)
      const inPath = parameter.in === 'path' ? path.replace(`{${parameter.name}}`, text) : path
      const full = inPath.replace(/\{\w+\}/g, SAMPLE)
      return { method, path: parameter.in === 'query' ? `${full}?${parameter.name}=${text}` : full }
    }),
  )
}

async function send(
  { send: fetchOne, clock }: App,
  { method, path, body, type }: Request,
): Promise<string | undefined> {
  clock.advanceMs(100) // the throttle of admin routes
  const headers: Record<string, string> = { authorization: `Bearer ${ADMIN_TOKEN}` }
  if (type !== undefined) headers['content-type'] = type
  const answer = await fetchOne(path, {
    method: method.toUpperCase(),
    headers,
    ...(body === undefined ? {} : { body }),
  })
  if (answer.status < 500 && answer.status !== 429) return undefined
  const code = String(answer.body.code)
  if (['TOO_MANY_STREAMS', 'ANALYTICS_UNAVAILABLE', 'SIMULATION_TOO_SLOW'].includes(code)) return undefined
  return `${method} ${path.slice(0, 100)} ${body?.slice(0, 150) ?? ''} → ${answer.status} ${code}`
}

const postgres = usePostgres()

test('hostile inputs are never an internal error', async () => {
  const database = await openDatabase({ database: postgres().createDatabase(), dataDir: '' })
  onTestFinished(() => database.close())
  const app = await serveDatabase(database)
  const document = (await app.get('/openapi.json')).body as unknown as Document
  const requests = requestsOf(document)
  expect(requests.length).toBeGreaterThan(2000)
  const failures: string[] = []
  for (const request of requests) {
    const failure = await send(app, request)
    if (failure !== undefined) failures.push(failure)
  }
  const logged = app.logged.filter(({ event }) => event === 'internal_error')
  expect({ failures, logged }).toEqual({ failures: [], logged: [] })
}, 600_000)
