import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import { fastify } from 'fastify'
import { describe, expect, test } from 'vitest'
import { AllowedHosts } from '../src/access/allowed-hosts.ts'
import type { DashboardFile } from '../src/dashboard/dashboard-files.ts'
import { dashboardRoutes } from '../src/http/routes/dashboard.ts'
import { serveApp } from './service.ts'

const HTML = 'text/html,application/xhtml+xml,*/*;q=0.8'
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; worker-src 'self'; " +
  "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

const file = (text: string, type: string, isImmutable: boolean): DashboardFile => ({
  type,
  etag: `"${text.length}"`,
  isImmutable,
  bodies: { identity: Buffer.from(text), gzip: Buffer.from('gzipped'), br: Buffer.from('brotli') },
})

async function dashboard(isBuilt = true) {
  const app = fastify()
  const files = new Map([
    ['/index.html', file('<h1>Sluice</h1>', 'text/html; charset=utf-8', false)],
    ['/assets/a-1.js', file('run()', 'text/javascript; charset=utf-8', true)],
  ])
  const hosts = new AllowedHosts([])
  const sendPage = dashboardRoutes(app, { files: isBuilt ? files : undefined, hosts })
  app.setNotFoundHandler((request, reply) => (sendPage(request, reply) ? reply : reply.code(404).send({})))
  return (url: string, headers: Record<string, string> = {}) =>
    app.inject({ url, headers: { host: 'localhost', accept: HTML, ...headers } })
}

describe('the dashboard', () => {
  test.each(['/', '/rules', '/clients/user/a.b'])('is sent to browsers at %s, with its policy', async (path) => {
    const { statusCode, headers, body } = await (await dashboard())(path)
    expect([statusCode, body]).toEqual([200, '<h1>Sluice</h1>'])
    expect(headers).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': POLICY,
      'x-frame-options': 'DENY',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-cache',
      vary: 'accept, accept-encoding',
    })
  })

  test.each([
    ['a program', '/', { accept: 'application/json' }],
    ['curl', '/rules', { accept: '*/*' }],
    ['a browser that opens a path of the API', '/api/v1/nothing', {}],
    ['a browser that asks for an asset of another version', '/assets/old.js', {}],
  ])('is not sent to %s', async (_name, path, headers) => {
    expect((await (await dashboard())(path, headers)).statusCode).toBe(404)
  })

  test('is not sent under a foreign name', async () => {
    expect((await (await dashboard())('/', { host: 'evil.example' })).statusCode).not.toBe(200)
  })

  test('says that it is not built', async () => {
    expect(await (await dashboard(false))('/')).toMatchObject({ statusCode: 503, body: expect.stringContaining('npm') })
  })

  test('has assets that browsers keep for ever, compressed as the browser prefers', async () => {
    const get = await dashboard()
    const asset = async (encoding: string) => (await get('/assets/a-1.js', { 'accept-encoding': encoding })).body
    expect([await asset('gzip, br'), await asset('gzip'), await asset('')]).toEqual(['brotli', 'gzipped', 'run()'])
    const { headers } = await get('/assets/a-1.js')
    expect(headers).toMatchObject({ 'cache-control': 'public, max-age=31536000, immutable', etag: '"5"' })
    expect((await get('/', { 'if-none-match': '"15"' })).statusCode).toBe(304)
  })
})

test('/ is JSON for programs and the dashboard for browsers', async () => {
  const { get, send } = await serveApp([])
  expect((await get('/')).body).toMatchObject({ service: 'sluice' })
  const page = await send('/', { headers: { accept: HTML } })
  expect([200, 503]).toContain(page.status) // 503 in a clone without a build
  expect(page.headers.get('content-type')).toMatch(/^text\//)
})

test('files of a build are equal in every encoding', async () => {
  const { readDashboardFiles } = await import('../src/dashboard/dashboard-files.ts')
  for (const [path, { bodies }] of readDashboardFiles() ?? []) {
    const { identity, gzip, br } = bodies
    expect(gzip && identity?.equals(gunzipSync(gzip)), path).toBe(true)
    expect(br && identity?.equals(brotliDecompressSync(br)), path).toBe(true)
  }
})
