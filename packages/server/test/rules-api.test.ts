import { expect, test } from 'vitest'
import { parse as parseYaml } from 'yaml'
import { verifyAudit } from '../src/audit/audit.ts'
import { describeDatabases } from './databases.ts'
import {
  ADMIN_TOKEN,
  type Answer,
  type App,
  MESSAGES_REQUEST,
  MESSAGES_RULE,
  RULE_SET,
  RULES,
  serveDatabase,
} from './service.ts'

const RULE = `${RULES}/messages_per_min`
const DAILY = { limit: 5, window: '1d', algorithm: 'fixed_window', scope: 'per_user' }

function call(
  app: App,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const isText = typeof body === 'string' || body instanceof Uint8Array
  const type = isText ? 'application/yaml' : 'application/json'
  const content = body === undefined ? {} : { body: isText ? (body as string) : JSON.stringify(body) }
  return app.send(path, {
    method,
    headers: {
      authorization: `Bearer ${ADMIN_TOKEN}`,
      ...(body === undefined ? {} : { 'content-type': type }),
      ...headers,
    },
    ...content,
  })
}

function ids({ body }: Answer): string[] {
  return (body.rules as { rule_id: string }[]).map(({ rule_id }) => rule_id)
}

/** A set of just these rules. */
async function using(app: App, ...rules: object[]): Promise<void> {
  expect((await call(app, 'PUT', RULE_SET, { rules })).status).toBe(200)
}

describeDatabases('rules over HTTP', ({ open }) => {
  const served = async (...rules: object[]) => {
    const database = await open()
    const app = await serveDatabase(database)
    await using(app, ...rules)
    return { app, database }
  }

  test('an empty database gets the example rules once, and deleted rules stay deleted', async () => {
    const database = await open()
    const app = await serveDatabase(database)
    expect(ids(await app.get(RULES))).toContain('demo')
    expect((await call(app, 'DELETE', `${RULES}/demo`)).status).toBe(204)
    const again = await serveDatabase(database)
    expect(ids(await again.get(RULES))).not.toContain('demo')
  })

  test('the documented rule is created, enforced, listed, deleted and gone', async () => {
    const { app } = await served()
    const created = await call(app, 'POST', RULES, MESSAGES_RULE)
    expect(created).toMatchObject({ status: 201, body: MESSAGES_RULE })
    expect([created.headers.get('location'), created.headers.get('etag')]).toEqual([RULE, `"${created.body.version}"`])
    expect(await app.check(MESSAGES_REQUEST)).toMatchObject({ allowed: true, limit: 100, remaining: 99 })
    expect(ids(await app.get(RULES))).toEqual(['messages_per_min'])
    const gone = await call(app, 'DELETE', RULE)
    expect([gone.status, gone.body.text]).toEqual([204, ''])
    expect(await app.check(MESSAGES_REQUEST)).toMatchObject({ allowed: true, limit: null })
    expect((await app.get(RULE)).body.code).toBe('RULE_UNKNOWN')
    const announced = { 'content-type': 'application/json' } // without a body, as some clients do
    expect((await call(app, 'DELETE', RULE, undefined, announced)).body.code).toBe('RULE_UNKNOWN')
  })

  test('no change is possible without the token', async () => {
    const { app } = await served(MESSAGES_RULE)
    for (const authorization of ['', 'Bearer wrong', ADMIN_TOKEN]) {
      for (const [method, path] of [
        ['POST', RULES],
        ['PUT', RULE],
        ['PATCH', RULE],
        ['DELETE', RULE],
        ['PUT', RULE_SET],
        ['POST', `${RULE_SET}/rollback`],
      ] as const) {
        expect((await call(app, method, path, {}, { authorization })).status, method).toBe(401)
      }
    }
    expect(ids(await app.get(RULES))).toEqual(['messages_per_min'])
  })

  test.each([
    ...['\u009b31m', '\u0085', '\u202e', '\u2066', '\u2028', '\u2029', '\ud800', '\u200b', '\ufeff', '\u00ad'],
    ...['\u061c', '\u180e', '\ufff9', '\u{e0001}', '\u{e007f}'],
  ])('a text that would change what people see is refused: %j', async (text) => {
    const { app } = await served(MESSAGES_RULE)
    for (const field of ['name', 'description', 'group']) {
      const { status, body } = await call(app, 'PATCH', RULE, { [field]: `a${text}b` })
      expect({ status, body }).toMatchObject({ status: 400, body: { code: 'RULE_INVALID', errors: [{ field }] } })
    }
    const reason = `freeze${text}`
    expect((await app.post('/api/v1/rate-limit/incident/freeze', { reason }, ADMIN_TOKEN)).status).toBe(400)
    expect((await app.post('/api/v1/admin/tokens', { name: text, role: 'viewer' }, ADMIN_TOKEN)).status).toBe(400)
  })

  test('names in any script, with emoji and marks of direction, are accepted', async () => {
    const { app } = await served(MESSAGES_RULE)
    for (const name of ['Grenzwert für Ümläute', '速率限制', 'حد المعدل\u200f', '👩\u200d🚀 launch', 'İstanbul']) {
      expect(await call(app, 'PATCH', RULE, { name })).toMatchObject({ status: 200, body: { name } })
    }
  })

  test('an existing rule is not created again, and an invalid one is reported field by field', async () => {
    const { app } = await served(MESSAGES_RULE)
    expect((await call(app, 'POST', RULES, MESSAGES_RULE)).body).toMatchObject({ status: 409, code: 'RULE_EXISTS' })
    const wrong = await call(app, 'POST', RULES, { rule_id: 'x', limit: -1, window_secs: 3, store: 'hot' })
    expect(wrong.body).toMatchObject({ status: 400, code: 'RULE_INVALID' })
    expect((wrong.body.errors as { field: string }[]).map(({ field }) => field)).toEqual([
      'window_secs',
      'window_seconds',
      'limit',
    ])
    const ignored = await call(app, 'POST', RULES, { rule_id: 'x', limit: 1, window: '1m', store: 'hot' })
    expect(ignored.body.errors).toMatchObject([{ field: 'store', value: 'hot' }])
    expect((await call(app, 'PUT', RULE, { ...MESSAGES_RULE, rule_id: 'other' })).body.code).toBe('REQUEST_INVALID')
  })

  test('an edit based on an outdated version is rejected with the current one', async () => {
    const { app } = await served(MESSAGES_RULE)
    const read = await app.get(RULE)
    const tag = read.headers.get('etag') ?? ''
    const first = await call(app, 'PUT', RULE, { ...MESSAGES_RULE, limit: 50 }, { 'if-match': tag })
    expect(first).toMatchObject({ status: 200, body: { limit: 50 } })
    const second = await call(app, 'PUT', RULE, { ...MESSAGES_RULE, limit: 60 }, { 'if-match': tag })
    expect(second).toMatchObject({ status: 412, body: { code: 'VERSION_CONFLICT' } })
    expect(second.headers.get('etag')).toBe(first.headers.get('etag'))
    expect(second.body.detail).toContain(`the current version is ${first.body.version}`)
    expect((await call(app, 'DELETE', RULE, undefined, { 'if-match': tag })).status).toBe(412)
    expect((await call(app, 'PATCH', RULE, { limit: 1 }, { 'if-match': 'seven' })).status).toBe(400)
    expect((await call(app, 'PUT', `${RULES}/new`, DAILY, { 'if-match': '"1"' })).status).toBe(412)
    const create = { 'if-none-match': '*' }
    expect((await call(app, 'PUT', `${RULES}/new`, DAILY, create)).status).toBe(201)
    const again = await call(app, 'PUT', `${RULES}/new`, DAILY, create)
    expect(again).toMatchObject({ status: 412, body: { code: 'VERSION_CONFLICT' } })
    expect(again.headers.get('etag')).toMatch(/^"\d+"$/)
    expect((await call(app, 'PUT', `${RULES}/new`, DAILY, { 'if-none-match': '"1"' })).status).toBe(400)
    expect((await app.get(RULE)).body.limit).toBe(50)
  })

  test('of concurrent edits exactly one wins', async () => {
    const { app } = await served(MESSAGES_RULE)
    const tag = (await app.get(RULE)).headers.get('etag') ?? ''
    const edits = [1, 2, 3, 4, 5, 6, 7, 8].map((limit) => call(app, 'PATCH', RULE, { limit }, { 'if-match': tag }))
    const statuses = (await Promise.all(edits)).map(({ status }) => status)
    expect(statuses.sort()).toEqual([200, 412, 412, 412, 412, 412, 412, 412])
  })

  test('PATCH changes the given fields, null removes a field, and derived defaults follow', async () => {
    const { app } = await served({ ...MESSAGES_RULE, name: 'Posting', when: { country: 'NL' } })
    expect((await app.get(RULE)).body).toMatchObject({ on_fail: 'open' })
    const { status, body } = await call(
      app,
      'PATCH',
      RULE,
      { limit: 7, name: null, intent: 'abuse', when: { plan: 'x' } },
      { 'content-type': 'application/merge-patch+json' },
    )
    expect([status, body]).toEqual([200, expect.not.objectContaining({ name: 'Posting' })])
    expect(body).toMatchObject({ limit: 7, on_fail: 'closed', when: { country: ['NL'], plan: ['x'] } })
    expect((await call(app, 'PATCH', `${RULES}/unknown`, { limit: 7 })).body.code).toBe('RULE_UNKNOWN')
    expect((await call(app, 'PATCH', RULE, { rule_id: 'other' })).body.code).toBe('REQUEST_INVALID')
  })

  test('a patch that is nested too deeply is a 400 that says so', async () => {
    const { app } = await served(MESSAGES_RULE)
    const text = `{"when":${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}}`
    const { status, body } = await call(app, 'PATCH', RULE, text, { 'content-type': 'application/json' })
    expect(status).toBe(400)
    expect(body.errors).toMatchObject([{ field: 'when.a', fix: 'give a string, a list of strings, or { not: … }' }])
  })

  test('a dry run shows what would change, and changes nothing', async () => {
    const { app } = await served(MESSAGES_RULE)
    const before = (await app.get(RULES)).body
    const patched = await call(app, 'PATCH', `${RULE}?dry_run=true`, { limit: 7 })
    const changes = [{ rule_id: 'messages_per_min', change: 'updated', before: { limit: 100 }, after: { limit: 7 } }]
    expect(patched).toMatchObject({ status: 200, body: { dry_run: true, changes } })
    const emptied = await call(app, 'PUT', `${RULE_SET}?dry_run=true`, { rules: [] })
    expect(emptied.body.changes).toMatchObject([
      { rule_id: 'messages_per_min', change: 'deleted', before: MESSAGES_RULE },
    ])
    expect(await call(app, 'DELETE', `${RULE}?dry_run=true`)).toMatchObject({ status: 200, body: emptied.body })
    expect((await call(app, 'PUT', `${RULE_SET}?dry_run=maybe`, { rules: [] })).status).toBe(400)
    expect((await app.get(RULES)).body).toEqual(before)
  })

  test('a written change is returned, even by a node that cannot apply it', async () => {
    const { app, database } = await served(MESSAGES_RULE)
    const wrong = '{"rule_id":"by_hand","limit":-1}'
    await database.query('INSERT INTO rules (rule_id, revision, rule) VALUES ($1, 99, $2)', ['by_hand', wrong])
    const { status, body } = await call(app, 'PATCH', RULE, { limit: 7 })
    expect({ status, limit: body.limit }).toEqual({ status: 200, limit: 7 })
    expect(await app.check(MESSAGES_REQUEST)).toMatchObject({ limit: 100 })
  })

  test('the list is filtered and paginated', async () => {
    const rule = (rule_id: string, more: object = {}) => ({ rule_id, ...DAILY, ...more })
    const { app } = await served(
      rule('c', { scope: 'global' }),
      rule('a', { mode: 'shadow' }),
      rule('b'),
      rule('off', { enabled: false }),
    )
    const listed = async (query: string) => ids(await app.get(`${RULES}?${query}`))
    expect(await listed('')).toEqual(['a', 'b', 'c'])
    expect(await listed('enabled=any')).toEqual(['a', 'b', 'c', 'off'])
    expect(await listed('enabled=false')).toEqual(['off'])
    expect(await listed('scope=global')).toEqual(['c'])
    expect(await listed('mode=shadow')).toEqual(['a'])
    expect(await listed('search=b')).toEqual(['b'])
    expect(await listed('search=B')).toEqual(['b'])
    const first = await app.get(`${RULES}?limit=2`)
    expect([ids(first), first.body.next]).toEqual([['a', 'b'], 'b'])
    const last = await app.get(`${RULES}?limit=2&after=${first.body.next}`)
    expect([ids(last), last.body.next]).toEqual([['c'], undefined])
    expect((await app.get(`${RULES}?limit=0`)).status).toBe(400)
  })

  test('a set is imported atomically, and errors are reported with their lines', async () => {
    const { app } = await served(MESSAGES_RULE)
    const wrong = await call(
      app,
      'PUT',
      RULE_SET,
      'rules:\n  - rule_id: a\n    limit: 5\n    window: 1d\n  - rule_id: b\n    limit: -5\n    window: 1d\n',
    )
    expect(wrong.body).toMatchObject({ status: 400, errors: [{ field: 'rules[1].limit', value: -5, line: 6 }] })
    expect((await call(app, 'PUT', RULE_SET, 'rules: [')).body).toMatchObject({ status: 400, code: 'RULE_INVALID' })
    expect(ids(await app.get(RULES))).toEqual(['messages_per_min'])
    const good = await call(
      app,
      'PUT',
      `${RULE_SET}?reason=because`,
      '- { rule_id: a, limit: 5, window: 1d }\n- { rule_id: b, limit: 6, window: 1d }\n',
    )
    const changes = (good.body.changes as { rule_id: string; change: string }[]).map(
      ({ rule_id, change }) => `${rule_id} ${change}`,
    )
    expect([good.status, changes]).toEqual([200, ['a created', 'b created', 'messages_per_min deleted']])
    expect(ids(await app.get(RULES))).toEqual(['a', 'b'])
  })

  test('an export can be imported again, and changes nothing', async () => {
    const database = await open()
    const app = await serveDatabase(database) // the example rules have a bit of everything
    const { version } = (await app.get(RULES)).body
    const exported = await app.get(RULE_SET)
    expect([exported.headers.get('etag'), exported.headers.get('content-type')]).toEqual([
      `"${version}"`,
      'application/yaml; charset=utf-8',
    ])
    const again = await call(app, 'PUT', RULE_SET, String(exported.body.text))
    expect(again).toMatchObject({ status: 200, body: { version, changes: [] } })
    expect((await app.get(`${RULE_SET}?format=json`)).body).toEqual({
      version,
      rules: parseYaml(String(exported.body.text)).rules,
    })
  })

  test('versions are listed, compared and rolled back to', async () => {
    const { app } = await served({ rule_id: 'a', ...DAILY })
    const first = Number((await app.get(RULES)).body.version)
    await call(app, 'PATCH', `${RULES}/a?reason=less`, { limit: 3 })
    await call(app, 'POST', RULES, { rule_id: 'b', ...DAILY })
    const { versions } = (await app.get(`${RULE_SET}/versions?limit=2`)).body
    expect(versions).toMatchObject([
      { version: first + 2, rule_count: 2, actor: 'admin-token', actor_name: null, reason: null },
      { version: first + 1, rule_count: 1, reason: 'less', created_at: expect.stringMatching(/^\d{4}-.*Z$/) },
    ])
    expect((await app.get(`${RULE_SET}/versions?before=${first + 1}&limit=1`)).body.versions).toMatchObject([
      { version: first },
    ])
    expect((await app.get(`${RULE_SET}/versions/${first}`)).body).toMatchObject({
      version: first,
      rules: [{ rule_id: 'a', limit: 5 }],
    })
    const diff = (await app.get(`${RULE_SET}/diff?from=${first}`)).body
    expect(diff).toMatchObject({
      ...{ from: first, to: first + 2 },
      changes: [
        { rule_id: 'a', change: 'updated', before: { limit: 5 }, after: { limit: 3 } },
        { rule_id: 'b', change: 'created' },
      ],
    })
    const back = await call(app, 'POST', `${RULE_SET}/rollback`, { version: first })
    expect(back).toMatchObject({ status: 200, body: { version: first + 3 } })
    expect((await app.get(RULES)).body).toMatchObject({
      version: first + 3,
      rules: [{ rule_id: 'a', limit: 5, version: first + 3 }],
    })
    expect((await call(app, 'POST', `${RULE_SET}/rollback`, { version: 999 })).body.code).toBe('VERSION_UNKNOWN')
    expect((await call(app, 'POST', `${RULE_SET}/rollback`, { version: 1 }, { 'if-match': '"1"' })).status).toBe(412)
  })

  test('every change is in the audit log: actor, action, difference and reason', async () => {
    const { app, database } = await served(MESSAGES_RULE)
    await call(app, 'PATCH', `${RULE}?reason=too%20much`, { limit: 7 })
    await call(app, 'PATCH', `${RULE}?dry_run=true`, { limit: 8 })
    await call(app, 'PATCH', RULE, { limit: 7 })
    const rows = await database.query<{ diff: string }>('SELECT * FROM audit ORDER BY seq DESC LIMIT 2')
    expect(rows.map((row) => ({ ...row, diff: JSON.parse(row.diff) }))).toMatchObject([
      {
        ...{ actor: 'admin-token', action: 'rule.update', target: 'messages_per_min', reason: 'too much' },
        diff: { changes: [{ before: { limit: 100 }, after: { limit: 7 } }] },
      },
      { action: 'rules.import', target: 'rules' },
    ])
    expect(await verifyAudit(database)).toMatchObject({ intact: true })
  })

  test('a rule ends at expires_at', async () => {
    const { app } = await served()
    const expires_at = new Date(app.clock.nowUs() / 1000 + 60_000).toISOString()
    await call(app, 'POST', RULES, { rule_id: 'sale', ...DAILY, expires_at })
    expect(await app.check({ client_id: 'a' })).toMatchObject({ limit: 5 })
    app.clock.advanceUs(59_999_999)
    expect(ids(await app.get(RULES))).toEqual(['sale'])
    app.clock.advanceUs(1)
    expect(await app.check({ client_id: 'a' })).toMatchObject({ limit: null })
    expect(ids(await app.get(RULES))).toEqual([])
    expect(ids(await app.get(`${RULES}?enabled=any`))).toEqual(['sale'])
  })

  test.each<[string, string, string, unknown, number]>([
    ['SQL in a rule id', 'DELETE', `${RULES}/${encodeURIComponent("'; DROP TABLE rules; --")}`, undefined, 400],
    ['SQL in a reason', 'PATCH', `${RULE}?reason=${encodeURIComponent("'); DROP TABLE rules; --")}`, { limit: 7 }, 200],
    ['SQL in a search', 'GET', `${RULES}?search=${encodeURIComponent("' OR 1=1; --")}`, undefined, 200],
    ['SQL in a name', 'PATCH', RULE, { name: "'; DROP TABLE rules; --" }, 200],
    ['SQL as a version', 'GET', `${RULE_SET}/versions/${encodeURIComponent('1; DROP TABLE rules')}`, undefined, 400],
    ['a version beyond all', 'GET', `${RULE_SET}/versions/999999999999999`, undefined, 404],
    ['a NUL in a name', 'PATCH', RULE, { name: 'a\0b' }, 400],
    ['a NUL in a reason', 'PATCH', `${RULE}?reason=%00`, { limit: 7 }, 400],
    ['half a character', 'PATCH', RULE, { name: 'a\ud800b' }, 400],
    ['a backslash before what looks like half a character', 'PATCH', RULE, { name: 'a\\ud800b' }, 200],
    ['bytes that are not UTF-8', 'PUT', RULE_SET, Buffer.from([0x5b, 0xff, 0x5d]), 400],
    ['a rule of 65 KiB', 'PUT', RULE, { ...MESSAGES_RULE, name: 'x'.repeat(65 * 1024) }, 413],
    ['a set of 9 MiB', 'PUT', RULE_SET, `# ${'x'.repeat(9 * 1024 * 1024)}`, 413],
    ['YAML where JSON is meant', 'PUT', RULE, 'limit: 5', 415],
    ['nesting beyond all bounds', 'PUT', RULE_SET, `${'['.repeat(5000)}${']'.repeat(5000)}`, 400],
    ['a rollback beyond all versions', 'POST', `${RULE_SET}/rollback`, { version: 1e19 }, 400],
    ['a list as a rule', 'POST', RULES, [], 400],
    ['a field of objects', 'PATCH', RULE, { __proto__: null, constructor: 1 }, 400],
  ])('%s gets a clean answer', async (_what, method, path, body, status) => {
    const { app } = await served(MESSAGES_RULE)
    const answer = await call(app, method, path, body)
    expect(answer.status, JSON.stringify(answer.body)).toBe(status)
    expect(ids(await app.get(RULES))).toEqual(['messages_per_min'])
  })
})
