import { describe, expect, test } from 'vitest'
import { newSecret, tokenHash } from '../src/access/token.ts'
import { AUTH_PATH } from '../src/http/routes/auth.ts'
import { PROBLEMS } from '../src/problems/problem.ts'
import { ADMIN_TOKEN, type App, serveApp } from './service.ts'

type Operation = {
  operationId: string
  summary: string
  tags: string[]
  requestBody?: { content: Record<string, { schema: object; examples?: object; example?: unknown }> }
  responses: Record<string, { description: string; content?: object }>
  'x-role'?: string
}
type Document = {
  openapi: string
  info: { title: string; version: string }
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, object> }
}

async function description(): Promise<Document> {
  const { get } = await serveApp([])
  const { status, body } = await get('/openapi.json')
  expect(status).toBe(200)
  return body as unknown as Document
}

function operationsOf({ paths }: Document): [string, Operation][] {
  return Object.entries(paths).flatMap(([path, methods]) => {
    return Object.entries(methods).map(([method, operation]) => [`${method} ${path}`, operation] as [string, Operation])
  })
}

describe('/openapi.json', () => {
  test('is OpenAPI 3.1 and describes every route', async () => {
    const document = await description()
    expect(document.openapi).toMatch(/^3\.1\./)
    expect(document.info).toMatchObject({ title: 'Sluice', version: expect.stringMatching(/^\d+\.\d+\.\d+/) })
    expect(
      operationsOf(document)
        .map(([name]) => name)
        .sort(),
    ).toEqual([
      'delete /api/v1/admin/tokens/{token_id}',
      'delete /api/v1/demo',
      'delete /api/v1/rate-limit/bypass-tokens/{bypass_id}',
      'delete /api/v1/rate-limit/incident/factor',
      'delete /api/v1/rate-limit/overrides/{override_id}',
      'delete /api/v1/rate-limit/rules/{rule_id}',
      'delete /api/v1/rate-limit/signals/{signal_id}',
      'delete /api/v1/session',
      'get /',
      'get /api/v1/admin/audit',
      'get /api/v1/admin/audit/verify',
      'get /api/v1/admin/tokens',
      'get /api/v1/analytics/clients/{id}',
      'get /api/v1/analytics/latency',
      'get /api/v1/analytics/summary',
      'get /api/v1/analytics/timeline',
      'get /api/v1/analytics/top',
      'get /api/v1/demo',
      'get /api/v1/events/stream',
      'get /api/v1/fleet',
      'get /api/v1/fleet/stream',
      'get /api/v1/rate-limit/auth',
      'get /api/v1/rate-limit/bypass-tokens',
      'get /api/v1/rate-limit/decisions',
      'get /api/v1/rate-limit/decisions/{request_id}',
      'get /api/v1/rate-limit/hot-keys',
      'get /api/v1/rate-limit/incident',
      'get /api/v1/rate-limit/kill-switch',
      'get /api/v1/rate-limit/overrides',
      'get /api/v1/rate-limit/overrides/{override_id}',
      'get /api/v1/rate-limit/proposals',
      'get /api/v1/rate-limit/proposals/{proposal_id}',
      'get /api/v1/rate-limit/proposals/{proposal_id}/figures',
      'get /api/v1/rate-limit/rule-set',
      'get /api/v1/rate-limit/rule-set/diff',
      'get /api/v1/rate-limit/rule-set/versions',
      'get /api/v1/rate-limit/rule-set/versions/{version}',
      'get /api/v1/rate-limit/rules',
      'get /api/v1/rate-limit/rules/{rule_id}',
      'get /api/v1/rate-limit/signals',
      'get /api/v1/rate-limit/simulate/requests',
      'get /api/v1/rate-limit/violations',
      'get /api/v1/session',
      'get /api/v1/webhooks',
      'get /healthcheck',
      'get /livez',
      'get /metrics',
      'get /openapi.json',
      'get /readyz',
      'patch /api/v1/rate-limit/rules/{rule_id}',
      'post /api/v1/admin/drill',
      'post /api/v1/admin/tokens',
      'post /api/v1/admin/tokens/{token_id}/approve',
      'post /api/v1/demo',
      'post /api/v1/rate-limit/auth',
      'post /api/v1/rate-limit/buckets/reset',
      'post /api/v1/rate-limit/bypass-tokens',
      'post /api/v1/rate-limit/bypass-tokens/{bypass_id}/approve',
      'post /api/v1/rate-limit/bypass-tokens/{bypass_id}/rotate',
      'post /api/v1/rate-limit/check',
      'post /api/v1/rate-limit/check/batch',
      'post /api/v1/rate-limit/explain',
      'post /api/v1/rate-limit/incident/factor',
      'post /api/v1/rate-limit/incident/factor/approve',
      'post /api/v1/rate-limit/incident/freeze',
      'post /api/v1/rate-limit/incident/unfreeze',
      'post /api/v1/rate-limit/kill-switch',
      'post /api/v1/rate-limit/overrides',
      'post /api/v1/rate-limit/overrides/{override_id}/approve',
      'post /api/v1/rate-limit/proposals',
      ...['abort', 'approve', 'pause', 'promote', 'reject', 'start'].map(
        (verb) => `post /api/v1/rate-limit/proposals/{proposal_id}/${verb}`,
      ),
      'post /api/v1/rate-limit/refund',
      'post /api/v1/rate-limit/rule-set/rollback',
      'post /api/v1/rate-limit/rules',
      'post /api/v1/rate-limit/rules/validate',
      'post /api/v1/rate-limit/signals',
      'post /api/v1/rate-limit/simulate',
      'post /api/v1/session',
      'put /api/v1/rate-limit/rule-set',
      'put /api/v1/rate-limit/rules/{rule_id}',
    ])
  })

  test('every operation has a unique id, a summary, a tag and described responses', async () => {
    const operations = operationsOf(await description())
    for (const [name, { operationId, summary, tags, responses }] of operations) {
      expect({ operationId, summary, tags }, name).toEqual({
        operationId: expect.stringMatching(/^\w+$/),
        summary: expect.stringMatching(/\w/),
        tags: [expect.any(String)],
      })
      expect(Object.keys(responses).length, name).toBeGreaterThan(0)
      for (const response of Object.values(responses)) expect(response.description, name).toEqual(expect.any(String))
    }
    expect(new Set(operations.map(([, { operationId }]) => operationId)).size).toBe(operations.length)
  })

  test('every body has an example', async () => {
    for (const [name, { requestBody }] of operationsOf(await description())) {
      if (requestBody !== undefined) expect(JSON.stringify(requestBody), name).toMatch(/"examples?":/)
    }
  })

  test('the items of a batch are described as checks', async () => {
    const { paths } = await description()
    const [check, batch] = ['/api/v1/rate-limit/check', '/api/v1/rate-limit/check/batch'].map((path) => {
      return paths[path]?.post?.requestBody?.content['application/json']?.schema as {
        properties: Record<string, unknown>
      }
    })
    expect(batch?.properties.checks).toMatchObject({ items: { properties: check?.properties } })
  })

  test('every reference resolves', async () => {
    const document = await description()
    const references = [...JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)].map(([, target]) => target)
    expect(references.length).toBeGreaterThan(0)
    for (const target of new Set(references)) {
      const name = /^#\/components\/schemas\/(\w+)$/.exec(target ?? '')?.[1] ?? ''
      expect(document.components.schemas, target).toHaveProperty(name)
    }
  })

  test('problems are described as problem documents, for existing statuses', async () => {
    const statuses = new Set([...Object.values(PROBLEMS), 429].map(String)) // refusals have no code
    for (const [name, { responses }] of operationsOf(await description())) {
      for (const [status, response] of Object.entries(responses)) {
        if (status.startsWith('2') || ['get /readyz', 'get /healthcheck'].includes(name)) continue
        expect(statuses, `${name} ${status}`).toContain(status)
        expect(Object.keys(response.content ?? {}), `${name} ${status}`).toEqual(['application/problem+json'])
      }
    }
  })
})

/** Statuses that come from the guard, the validation and the body parsers, not from routes. */
const SHARED = ['400', '401', '403', '413', '415', '429']

/** The statuses of everything that can be wrong with a request before its route sees it. */
async function provoked(app: App, method: string, path: string, checkToken: string): Promise<string[]> {
  const [short, long] = ['x', 'x'.repeat(2000)].map((value) => path.replace(/\{\w+\}/g, value)) as [string, string]
  const statusOf = async (url: string, token: string | undefined, type?: string, body?: string) => {
    const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` }
    const headers = { ...authorization, ...(type === undefined ? {} : { 'content-type': type }) }
    return (await app.send(url, { method, headers, ...(body === undefined ? {} : { body }) })).status
  }
  const statuses: number[] = []
  for (const token of [undefined, checkToken]) statuses.push(await statusOf(short, token))
  for (const url of [short, long, `${short}?unknown=1`]) statuses.push(await statusOf(url, ADMIN_TOKEN))
  if (method !== 'GET') {
    const bodies = [
      ['application/json', '{'],
      ['application/json', '{}'],
      ['application/json', `"${'x'.repeat(9 * 1024 * 1024)}"`],
      ['text/csv', 'a,b'],
    ] as const
    for (const [type, body] of bodies) statuses.push(await statusOf(short, ADMIN_TOKEN, type, body))
  }
  app.clock.advanceUs(120e6) // resets the throttle for invalid tokens
  for (let sent = 0; sent <= 20; sent += 1) statuses.push(await statusOf(short, `wrong-${sent}`))
  app.clock.advanceUs(120e6)
  return statuses.map(String)
}

test('every operation declares exactly the statuses of the guard, the validation and the parsers', async () => {
  const [check, viewer] = [newSecret(), newSecret()]
  const dates = { createdAt: '2029-01-01T00:00:00Z', expiresAt: null, revokedAt: null }
  const tokens = [
    { tokenId: 'tok_check', name: 'check', role: 'check' as const, hash: tokenHash(check), ...dates },
    { tokenId: 'tok_viewer', name: 'viewer', role: 'viewer' as const, hash: tokenHash(viewer), ...dates },
  ]
  const app = await serveApp([], undefined, { tokens, checksAreOpen: false })
  const document = (await app.get('/openapi.json')).body as unknown as Document
  for (const [name, { responses, 'x-role': role }] of operationsOf(document)) {
    const [verb = '', path = ''] = name.split(' ')
    if (path === AUTH_PATH) continue // ignores tokens; has its own tests
    const statuses = new Set(await provoked(app, verb.toUpperCase(), path, role === 'check' ? viewer : check))
    const undeclared = [...statuses].filter((status) => !(status in responses))
    expect(undeclared, `${name} answers, and does not declare`).toEqual([])
    if (statuses.has('409')) continue // rules are in a file: writes are rejected before the body is read
    const impossible = SHARED.filter((status) => status in responses && !statuses.has(status))
    expect(impossible, `${name} declares, and does not answer`).toEqual([])
  }
})
