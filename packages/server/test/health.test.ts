import { readFileSync, writeFileSync } from 'node:fs'
import { expect, test, vi } from 'vitest'
import { serveApp, serveFile } from './service.ts'

test('/livez answers while the process runs', async () => {
  const { get, lifecycle } = await serveApp([])
  lifecycle.draining = true
  expect(await get('/livez')).toMatchObject({ status: 200, body: { status: 'alive' } })
})

test('/readyz: ready, then degraded but still 200, then draining and 503', async () => {
  const service = await serveFile('[]')
  expect((await service.get('/readyz')).body).toMatchObject({ status: 'ready', store: 'memory', reasons: [] })
  writeFileSync(service.rulesPath, 'no rules')
  const reasons = [
    expect.stringMatching(`^rules: the file ${service.rulesPath} has invalid rules; the last good rules stay active; `),
  ]
  await vi.waitFor(async () => {
    expect(await service.get('/readyz')).toMatchObject({ status: 200, body: { status: 'degraded', reasons } })
  }, 10_000)
  const { get, lifecycle } = await serveApp([])
  expect((await get('/readyz')).body).toEqual({ status: 'ready', rules_version: 1, store: 'memory', reasons: [] })
  lifecycle.draining = true
  expect(await get('/readyz')).toMatchObject({ status: 503, body: { status: 'draining' } })
})

test('/healthcheck answers probes of envoyproxy/ratelimit: 200 and OK, then 500 while the node drains', async () => {
  const { address, lifecycle } = await serveApp([])
  const answer = async () => {
    const response = await fetch(`${address}/healthcheck`)
    return [response.status, response.headers.get('content-type'), await response.text()]
  }
  expect(await answer()).toEqual([200, expect.stringContaining('text/plain'), 'OK'])
  lifecycle.draining = true
  expect(await answer()).toEqual([500, expect.stringContaining('text/plain'), ''])
})

test('/ lists every route with its role and summary', async () => {
  const { get } = await serveApp([])
  const { body } = await get('/')
  expect(body).toMatchObject({ service: 'sluice', documentation: '/openapi.json' })
  const { paths } = (await get('/openapi.json')).body as { paths: Record<string, Record<string, unknown>> }
  const all = Object.entries(paths).flatMap(([path, methods]) => {
    return Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`)
  })
  const routes = body.routes as { route: string; role: string; summary: string }[]
  expect(routes.map(({ route }) => route)).toEqual(all)
  expect(all.length).toBeGreaterThan(25)
  const page = readFileSync(new URL('../../../docs/reference/http-api.md', import.meta.url), 'utf8')
  for (const { route, role, summary } of routes) {
    const row = page.split('\n').find((line) => line.startsWith(`| \`${route}\` `) || line.startsWith(`| \`${route}?`))
    expect(row, route).toContain(`| ${role} |`)
    expect(summary, route).toMatch(/\w/)
  }
})
