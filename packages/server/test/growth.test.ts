// Doubling a body multiplies the CPU time that it costs by at most 2.5: nothing that reads a request is quadratic. What
// the longest turns are on this machine, `npm run bench -- turns` measures.

import { readFileSync } from 'node:fs'
import { inSlices } from 'sluice'
import { decodeRequests } from 'sluice/remote-wire'
import { LogReader } from 'sluice/replay'
import { describe, expect, test } from 'vitest'
import {
  exampleOf,
  filled,
  JSON_VALUES,
  type MakeText,
  RULE_FIELDS,
  type Schema,
  type WorstBody,
  worstBodies,
  YAML_TEXTS,
} from '../../../bench/src/worst-bodies.ts'
import { readConfig } from '../src/envoy/config-reader.ts'
import { rateLimitRequestFromJson } from '../src/envoy/rate-limit-json.ts'
import { readRateLimitRequest } from '../src/grpc/envoy/request-reader.ts'
import { ProtobufReader, ProtobufWriter } from '../src/grpc/protobuf.ts'
import { readCheck } from '../src/grpc/rate-limiter/check-request.ts'
import { readReport } from '../src/grpc/rlqs/messages.ts'
import { readJson, readYaml } from '../src/rules/source-text.ts'
import { jsonErrorPosition } from '../src/text/json-error-position.ts'
import { parsingJson } from '../src/text/long-json.ts'
import { emptyDataDir } from './databases.ts'
import { ADMIN_TOKEN, type Client, serveSettings } from './service.ts'

/** Four times the size: doubled twice. */
const GROWTH_MAX = 2.5 ** 2
/** Less is accepted at any ratio: the time of a fixed part, or of garbage collection. */
const NEGLIGIBLE_MS = 20
const ATTEMPTS = 5
/** YAML is slow: its texts are shorter. */
const LONG = { json: 128 * 1024, yaml: 24 * 1024, body: 32 * 1024 } as const

/** CPU time of this thread, in ms. Unlike elapsed time, it does not depend on the load of the machine. */
function cpuMs(): number {
  const [running = ''] = readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')
  return Number(running) / 1e6
}

async function costMs(work: () => unknown): Promise<number> {
  const before = cpuMs()
  await work()
  return cpuMs() - before
}

/** The smallest ratio of a few attempts: garbage collection only adds. Undefined if the work is negligible. */
async function growth(workOf: (bytes: number) => () => unknown, bytes: number): Promise<number | undefined> {
  const long = workOf(bytes)
  if ((await costMs(long)) < NEGLIGIBLE_MS) return undefined
  const short = workOf(bytes / 4)
  const ratios: number[] = []
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const shortMs = await costMs(short)
    const longMs = await costMs(long)
    if (longMs < NEGLIGIBLE_MS) return undefined
    ratios.push(longMs / Math.max(shortMs, NEGLIGIBLE_MS / GROWTH_MAX))
    if (Math.min(...ratios) <= GROWTH_MAX) break
  }
  return Math.min(...ratios)
}

/** Runs a parser that may reject its input. */
async function attempted<T>(parse: (input: T) => unknown, input: T): Promise<void> {
  try {
    await parse(input)
  } catch {
    // as expected: most inputs are invalid
  }
}

const LOG_LINES: Record<string, MakeText> = {
  ...JSON_VALUES,
  'a request line': (bytes) =>
    `1.2.3.4 - - [31/Jan/2030:12:00:00 +0000] "GET /${'a/'.repeat(bytes / 2)} HTTP/1.1" 200 5`,
  quotes: (bytes) => `1.2.3.4 - - [31/Jan/2030:12:00:00 +0000] ${'" '.repeat(bytes / 2)}`,
  spaces: (bytes) => `1.2.3.4${' '.repeat(bytes)}- [`,
  brackets: (bytes) => `1.2.3.4 - - ${'['.repeat(bytes)}`,
}

const CONFIGS: Record<string, MakeText> = {
  descriptors: (bytes) => `domain: a\ndescriptors:\n${filled(bytes, (index) => `- {key: k${index}}`, '\n')}`,
  'descriptors with a mistake': (bytes) => `descriptors:\n${filled(bytes, (index) => `- {keyy: k${index}}`, '\n')}`,
  aliases: (bytes) => `x: &a {key: b}\ndescriptors:\n${filled(bytes, () => '- *a', '\n')}`,
  'merge keys': (bytes) =>
    `domain: a\ndescriptors:\n- &a {key: b, metadata: {x: 1}}\n` +
    filled(bytes, (index) => `- {<<: [*a, *a], key: k${index}, metadata: {y: 1}}`, '\n'),
  'aliases of one metadata': (bytes) =>
    `domain: a\ndescriptors:\n- {key: b, metadata: &m {${filled(bytes / 2, (index) => `m${index}: 1`, ', ')}}}\n` +
    filled(bytes / 2, (index) => `- {key: k${index}, metadata: *m}`, '\n'),
  'merge keys of one metadata': (bytes) =>
    `domain: a\ndescriptors:\n- &b {key: b, metadata: &m {${filled(bytes / 2, (index) => `m${index}: 1`, ', ')}}}\n` +
    filled(bytes / 2, (index) => `- {<<: *b, key: k${index}, metadata: *m}`, '\n'),
  'descriptors that contain themselves': (bytes) =>
    `domain: a\ndescriptors: &d\n${filled(bytes, (index) => `- {key: k${index}, descriptors: *d}`, '\n')}`,
}

const FIELDS = ['rules[3].limit', 'r7.limit', 'k9', 'line 3']

type Parse = (text: string) => unknown
const PARSERS: [name: string, bytes: number, texts: Readonly<Record<string, MakeText>>, parse: Parse][] = [
  ['YAML', LONG.yaml, YAML_TEXTS, (text) => FIELDS.map(readYaml(text).lineOf)],
  ['configuration of Envoy', LONG.yaml, CONFIGS, readConfig],
  ['lines of fields in JSON', LONG.yaml, JSON_VALUES, (text) => FIELDS.map(readJson(text).lineOf)],
  ['JSON in slices', LONG.json, JSON_VALUES, (text) => inSlices(parsingJson(text))],
  ['JSON in slices, of a rule', LONG.json, RULE_FIELDS, (text) => inSlices(parsingJson(`{"rules":[${text}]}`))],
  ['position of a JSON mistake', LONG.json, JSON_VALUES, (text) => jsonErrorPosition(text.slice(0, -1))],
  ['Envoy as JSON', LONG.json, JSON_VALUES, (text) => rateLimitRequestFromJson(JSON.parse(text))],
  ['log lines', LONG.json, LOG_LINES, (text) => new LogReader().read(text)],
]

describe.each(PARSERS)('%s', (_, bytes, texts, parse) => {
  test.each(Object.entries(texts))('%s', async (_name, make) => {
    const found = await growth((size) => {
      const text = make(size)
      return () => attempted(parse, text)
    }, bytes)
    expect(found ?? 0).toBeLessThanOrEqual(GROWTH_MAX)
  })
})

const MESSAGES: [name: string, parse: (message: Uint8Array) => unknown][] = [
  ['Check', (message) => readCheck(new ProtobufReader(message))],
  ['ShouldRateLimit', readRateLimitRequest],
  ['quota reports', (message) => inSlices(readReport(message))],
  ['lease exchange', (message) => inSlices(decodeRequests(message))],
]

describe.each(MESSAGES)('gRPC: %s', (_, parse) => {
  /** A message of one field, which is repeated, or holds repeated fields down to this depth. */
  const messageOf = (field: number, depth: number, bytes: number): Uint8Array => {
    const writer = new ProtobufWriter()
    const inner = depth === 0 ? new Uint8Array(0) : undefined
    for (let index = 0; writer.length < bytes; index += 1) {
      if (inner !== undefined) writer.message(field, (item) => item.string(1, `k${index}`).string(2, 'v'))
      else writer.bytes(field, messageOf(field === 1 ? 2 : 1, depth - 1, bytes - 20), true)
    }
    return writer.finish()
  }
  const cases = [1, 2, 3, 4, 5, 6, 10].flatMap((field) => [0, 1, 2].map((depth) => [field, depth] as const))
  test.each(cases)('field %i, %i deep', async (field, depth) => {
    const found = await growth((bytes) => {
      const message = messageOf(field, depth, bytes)
      return () => attempted(parse, message)
    }, LONG.json)
    expect(found ?? 0).toBeLessThanOrEqual(GROWTH_MAX)
  })
})

type Operation = { requestBody?: { content: Record<string, { schema: Schema; example?: unknown }> } }
type Route = { readonly name: string; readonly method: string; readonly path: string; readonly example: unknown }

/** Routes that read a body: all that are no GET. */
async function routesWithBody({ get }: Client): Promise<Route[]> {
  const { paths } = (await get('/openapi.json')).body as { paths: Record<string, Record<string, Operation>> }
  return Object.entries(paths).flatMap(([url, methods]) =>
    Object.entries(methods)
      .filter(([verb]) => verb !== 'get')
      .map(([verb, { requestBody }]) => {
        const { schema = {}, example } = requestBody?.content['application/json'] ?? {}
        const [method, path] = [verb.toUpperCase(), url.replace(/\{\w+\}/g, 'x')]
        return { name: `${method} ${url}`, method, path, example: exampleOf(schema, example) }
      }),
  )
}

/** Tokens, used in turn: each may send 500 requests at once. */
async function tokensOf(client: Client): Promise<() => string> {
  const tokens: string[] = []
  for (let index = 0; index < 20; index += 1) {
    const { body } = await client.post('/api/v1/admin/tokens', { name: `growth ${index}`, role: 'admin' }, ADMIN_TOKEN)
    tokens.push(String(body.token))
  }
  let next = 0
  return () => tokens[next++ % tokens.length] as string // not empty
}

/** The parsers alone are tested with every text; here, those that validation and handlers treat differently. */
function isTried({ name }: WorstBody): boolean {
  if (name.startsWith('YAML, ')) return name.startsWith('YAML, rules')
  const [at = '', kind] = name.split(': ')
  return kind === undefined ? !name.endsWith(', cut off') : !at.includes('.')
}

test('bodies of every route', { timeout: 900_000 }, async () => {
  const client = await serveSettings({ dataDir: await emptyDataDir(), logLevel: 'silent' })
  const token = await tokensOf(client)
  const routes = await routesWithBody(client)
  expect(routes.length).toBeGreaterThan(35)
  const slow: string[] = []
  for (const { name, method, path, example } of routes) {
    const send = (body: string, type: string) => {
      const headers = { 'content-type': type, authorization: `Bearer ${token()}` }
      return client.send(path, { method, headers, body })
    }
    const yaml = (await send('a: 0', 'application/yaml')).status !== 415
    for (const { name: kind, type, make } of worstBodies(example, yaml).filter(isTried)) {
      const found = await growth((size) => {
        const body = make(size - 200)
        return () => send(body, type)
      }, LONG.body)
      if ((found ?? 0) > GROWTH_MAX) slow.push(`${name}, ${kind}: ${found}`)
    }
  }
  expect(slow).toEqual([])
})

test('the bodies of the test grow in proportion to their size', () => {
  const bodies: readonly Pick<WorstBody, 'name' | 'make'>[] = [
    ...worstBodies({ checks: [{ a: 1 }] }, true),
    ...Object.entries(RULE_FIELDS).map(([name, make]) => ({ name, make })),
  ]
  for (const { name, make } of bodies) {
    if (/^checks: \d+ of /.test(name)) continue // capped
    const ratio = make(4 * 16_384).length / make(16_384).length
    expect(ratio, name).toBeGreaterThan(3)
    expect(ratio, name).toBeLessThan(5)
  }
})
