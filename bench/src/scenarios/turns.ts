// The longest turn of the event loop that one request can cause: the worst bodies, query parameters and headers for
// every route of the service. Routes and sizes come from the running service, so a new route is included.

import { Agent, request as send } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { grpcAttacks, grpcCall } from '../grpc-attacks.ts'
import { progress, resultOf } from '../measure.ts'
import { ADMIN_TOKEN, type ProbedService, withProbedService } from '../probed-service.ts'
import type { Result, Scenario } from '../report.ts'
import { exampleOf, type Schema, worstBodies } from '../worst-bodies.ts'

/** Longest turn that a request may cause. */
const TURN_MS_MAX = 50
/** Turns above this are measured again, because garbage collection may have made them long. */
const SUSPECT_MS = 25
const REPEATS = 4
const RULES = 10_000
/** Body limits to look for, largest first. */
const SIZES = [8 * 2 ** 20, 2 * 2 ** 20, 2 ** 20, 64 * 2 ** 10]
const HEADERS_BYTES = 15_000
/** Default of --grpc-max-message-bytes. */
const MESSAGE_BYTES = 4 * 2 ** 20 - 1000

type Operation = { requestBody?: { content: Record<string, { schema: Schema; example?: unknown }> } }
type Route = { readonly method: string; readonly url: string; readonly body: unknown; readonly takesBody: boolean }
type Call = {
  readonly method: string
  readonly path: string
  readonly headers?: Record<string, string>
  readonly body?: string
}
type Attack = { readonly name: string; readonly make: (bytes: number) => Call }

export const scenario: Scenario = {
  what: 'CPU of the longest event loop turn of one request: worst bodies, parameters and headers of all routes',
  targets: { longest_turn_ms: { atMost: TURN_MS_MAX } },
  run: () =>
    withProbedService([], async (service) => {
      await fill(service)
      const results: Result[] = []
      for (const route of await routesOf(service)) results.push(...(await attack(service, route)))
      results.push(...(await attackGrpc(service)))
      results.sort((one, other) => other.median - one.median)
      return { results, ratios: { longest_turn_ms: results[0]?.median ?? Number.NaN } }
    }),
}

/** Ten thousand rules, half of them on one path, and some entries in every table. */
async function fill(service: ProbedService): Promise<void> {
  const rules = Array.from({ length: RULES }, (_, index) => ({
    rule_id: `rule_${index}`,
    endpoint_pattern: index % 2 === 0 ? '/api/v1/messages' : `/api/v1/service${index % 100}/resource${index}/:id`,
    plan: `plan_${index}`,
    scope: 'per_user',
    limit: 1000,
    window_seconds: 60,
  }))
  const path = '/api/v1/rate-limit/rule-set'
  const { status, text } = await call(service, { method: 'PUT', path, ...json(JSON.stringify({ rules })) })
  if (status !== 200) throw new Error(`the rules were refused: ${text}`)
  const batch = JSON.stringify({
    checks: Array.from({ length: 1000 }, (_, index) => ({ client_id: `user_${index}`, plan: 'plan_0', endpoint: '/' })),
  })
  for (let sent = 0; sent < 20; sent += 1) {
    await call(service, { method: 'POST', path: '/api/v1/rate-limit/check/batch', ...json(batch) })
  }
  for (let index = 0; index < 50; index += 1) {
    const override = { rule_id: 'rule_0', key: `user_${index}`, limit: 5, reason: 'a benchmark', expires_in: '1h' }
    await call(service, {
      method: 'POST',
      path: '/api/v1/rate-limit/overrides',
      ...json(JSON.stringify(override)),
    })
  }
}

/** Reads before writes, and what changes decisions at the end. */
async function routesOf(service: ProbedService): Promise<Route[]> {
  const { text } = await call(service, { method: 'GET', path: '/openapi.json' })
  const { paths } = JSON.parse(text) as { paths: Record<string, Record<string, Operation>> }
  return Object.entries(paths)
    .flatMap(([url, operations]) =>
      Object.entries(operations).map(([verb, { requestBody }]) => {
        const { schema = {}, example } = requestBody?.content['application/json'] ?? {}
        const method = verb.toUpperCase()
        return { method, url, body: exampleOf(schema, example), takesBody: method !== 'GET' }
      }),
    )
    .filter(({ method, url }) => isWanted(`${method} ${url}`))
    .sort((one, other) => order(one) - order(other))
}

/** TURNS_ROUTES: parts of the names of routes, and of gRPC methods and messages, to measure only these. */
function isWanted(name: string): boolean {
  const wanted = process.env.TURNS_ROUTES?.split(',')
  return wanted === undefined || wanted.some((part) => name.includes(part))
}

function order({ method, url }: Route): number {
  if (method === 'GET') return 0
  if (method === 'DELETE') return 3
  return /incident|kill-switch|demo|drill|rule-set$/.test(url) ? 2 : 1
}

async function attackGrpc(service: ProbedService): Promise<Result[]> {
  const attacks = (await grpcAttacks(service.grpcPort)).filter(({ name }) => isWanted(name))
  const results: Result[] = []
  for (const { name, path, make, isGzip } of attacks) {
    const messages = make(MESSAGE_BYTES)
    const send = () => grpcCall(service.grpcPort, path, messages, ADMIN_TOKEN, isGzip)
    const times = await measured(service, send)
    if (process.env.TURNS_VERBOSE) progress(`${Math.max(...times).toFixed(1)} ms  ${name}`)
    results.push(resultOf(name, times, 'ms'))
  }
  results.sort((one, other) => other.median - one.median)
  progress(`${results[0]?.median.toFixed(1)} ms  gRPC, ${attacks.length} messages  ${results[0]?.contender}`)
  return results.slice(0, Number(process.env.TURNS_ROWS ?? 3) * 5)
}

/** The longest turns of a request. The first call of a route compiles its schemas, so a suspect is measured again. */
async function measured(service: ProbedService, send: () => Promise<unknown>): Promise<number[]> {
  const first = await service.longestTurnMs(send)
  if (first < SUSPECT_MS) return [first]
  const times: number[] = []
  for (let repeat = 0; repeat < REPEATS; repeat += 1) times.push(await service.longestTurnMs(send))
  return times
}

async function attack(service: ProbedService, route: Route): Promise<Result[]> {
  const bytes = route.takesBody ? await sizeOf(service, route) : 0
  const yaml = route.takesBody && (await takesYaml(service, route))
  const attacks = [...requestLineAttacks(route), ...(bytes > 0 ? bodyAttacks(route, yaml) : [])]
  const results: Result[] = []
  for (const { name, make } of attacks) {
    let status = 0
    const made = make(bytes)
    const times = await measured(service, async () => {
      ;({ status } = await call(service, made))
    })
    results.push(resultOf(`${route.method} ${route.url}: ${name} (${status})`, times, 'ms'))
    if (/incident|kill-switch|demo/.test(route.url) && status < 300) await undo(service)
  }
  results.sort((one, other) => other.median - one.median)
  const worst = results[0]
  progress(`${worst?.median.toFixed(1)} ms  ${bytes} bytes, ${attacks.length} requests  ${worst?.contender}`)
  return results.slice(0, Number(process.env.TURNS_ROWS ?? 3))
}

async function undo(service: ProbedService): Promise<void> {
  const unfreeze = { method: 'POST', path: '/api/v1/rate-limit/incident/unfreeze', ...json('{"reason":"a benchmark"}') }
  const enable = { method: 'POST', path: '/api/v1/rate-limit/kill-switch', ...json('{"all":true,"on":true}') }
  const calls: Call[] = [unfreeze, enable]
  for (const path of ['/api/v1/rate-limit/incident/factor', '/api/v1/demo']) calls.push({ method: 'DELETE', path })
  for (const each of calls) await call(service, each)
}

/** The largest body that the route reads. */
async function sizeOf(service: ProbedService, { method, url }: Route): Promise<number> {
  for (const bytes of SIZES) {
    const body = `${' '.repeat(bytes - 1)}0`
    const { status } = await call(service, { method, path: pathOf(url), ...json(body) })
    if (status !== 413 && status !== 0) return bytes // 0: refused, and closed before the body was sent
  }
  return 0
}

async function takesYaml(service: ProbedService, { method, url }: Route): Promise<boolean> {
  const headers = { 'content-type': 'application/yaml' }
  return (await call(service, { method, path: pathOf(url), headers, body: 'a: 0' })).status !== 415
}

function requestLineAttacks({ method, url, body }: Route): Attack[] {
  const path = pathOf(url)
  const valid: Partial<Call> = body === undefined || method === 'GET' ? {} : json(JSON.stringify(body))
  const requests: Record<string, Partial<Call>> = {
    'a usual request': {},
    'the longest lists': { path: `${path}?limit=1000` },
    'the longest replay': { path: `${path}?limit=100000` },
    'many parameters': { path: `${path}?${many((index) => `p${index}=1`, '&')}` },
    'one parameter many times': { path: `${path}?${many(() => 'limit=1', '&')}` },
    'a long parameter': { path: `${path}?search=${'a'.repeat(HEADERS_BYTES)}` },
    'a parameter of escapes': { path: `${path}?search=${'%20'.repeat(HEADERS_BYTES / 3)}` },
    'a long path parameter': { path: url.includes('{') ? url.replace(/\{\w+\}/g, 'x'.repeat(12_000)) : path },
    'many entity tags': { headers: { 'if-match': many(() => '"1"', ',') } },
    'many languages': {
      headers: { accept: many(() => 'text/html;q=0.1', ','), 'accept-encoding': many(() => 'gzip', ',') },
    },
    'many cookies': { headers: { cookie: many((index) => `c${index}=1`, '; ') } },
    'one cookie many times': { headers: { cookie: many(() => 'sluice_session=a', '; ') } },
    'many addresses': { headers: forwarded({ 'x-forwarded-for': many(() => '::1', ',') }) },
    'one long address': { headers: forwarded({ 'x-forwarded-for': '1'.repeat(HEADERS_BYTES) }) },
    'an address of colons': { headers: forwarded({ 'x-forwarded-for': ':'.repeat(HEADERS_BYTES) }) },
    'spaces between addresses': { headers: forwarded({ 'x-forwarded-for': `::1${' '.repeat(HEADERS_BYTES)},a` }) },
    'a forwarded path of dots': { headers: forwarded({ 'x-original-uri': '/..'.repeat(HEADERS_BYTES / 3) }) },
    'a forwarded path of escapes': { headers: forwarded({ 'x-original-uri': '/%252e'.repeat(HEADERS_BYTES / 6) }) },
    'a forwarded path of slashes': { headers: forwarded({ 'x-original-uri': '/'.repeat(HEADERS_BYTES) }) },
    'a long token': { headers: { authorization: `Bearer ${'a.'.repeat(HEADERS_BYTES / 2)}` } },
    'a forwarded token': {
      headers: forwarded({ authorization: `Bearer ${'a'.repeat(20)}.${'a'.repeat(HEADERS_BYTES - 500)}.a` }),
    },
    'many headers': { headers: Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`x${index}`, '1'])) },
  }
  return Object.entries(requests).map(([name, { headers = {}, ...request }]) => {
    const all = { ...valid.headers, ...headers }
    return { name, make: () => ({ method, path, ...valid, ...request, headers: all }) }
  })
}

function forwarded(headers: Record<string, string>): Record<string, string> {
  return { 'x-original-uri': '/api/v1/messages', 'x-original-method': 'POST', ...headers }
}

function many(item: (index: number) => string, separator: string): string {
  const items: string[] = []
  for (let length = 0; length < HEADERS_BYTES - 20; length += (items.at(-1)?.length ?? 0) + separator.length) {
    items.push(item(items.length))
  }
  return items.join(separator)
}

function bodyAttacks({ method, url, body }: Route, yaml: boolean): Attack[] {
  return worstBodies(body, yaml).map(({ name, type, make }) => {
    const send = (bytes: number): Call => {
      const text = cut(make(bytes - 100), bytes)
      return { method, path: pathOf(url), headers: { 'content-type': type }, body: text }
    }
    return { name, make: send }
  })
}

function cut(text: string, bytes: number): string {
  return Buffer.from(text).subarray(0, bytes).toString()
}

function json(body: string): { readonly headers: Record<string, string>; readonly body: string } {
  return { headers: { 'content-type': 'application/json' }, body }
}

function pathOf(url: string): string {
  return url.replace(/\{\w+\}/g, 'rule_1')
}

const agent = new Agent({ keepAlive: true, maxSockets: 1 })

type Answer = { readonly status: number; readonly text: string }

/** Sends a request with the admin token, and waits while the token has sent too many. Event streams end at once. */
async function call({ address }: ProbedService, request: Call): Promise<Answer> {
  for (;;) {
    const answer = await once(address, request).catch((error: NodeJS.ErrnoException) => {
      return { status: 0, text: String(error.code) }
    })
    if (answer.status !== 429 || !answer.text.includes('TOO_MANY_REQUESTS')) return answer
    await delay(100)
  }
}

function once(address: string, { method, path, headers = {}, body }: Call): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) }
    const all = { authorization: `Bearer ${ADMIN_TOKEN}`, ...length, ...headers }
    const request = send(`${address}${path}`, { method, headers: all, agent, insecureHTTPParser: true }, (response) => {
      const chunks: Buffer[] = []
      const status = response.statusCode ?? 0
      if (path.startsWith('/api/v1/') && path.includes('/stream')) {
        setTimeout(() => request.destroy(), 100)
        response.on('error', () => {}).on('close', () => resolve({ status, text: '' }))
      }
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('end', () => resolve({ status, text: Buffer.concat(chunks).toString() }))
    })
    request.on('error', reject)
    request.end(body)
  })
}
