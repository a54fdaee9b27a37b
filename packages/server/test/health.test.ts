import { writeFileSync } from 'node:fs'
import { expect, test, vi } from 'vitest'
import { serveApp, serveFile } from './service.ts'

test('/livez answers while the process lives', async () => {
  const { get, lifecycle } = await serveApp([])
  lifecycle.draining = true
  expect(await get('/livez')).toMatchObject({ status: 200, body: { status: 'alive' } })
})

test('/readyz: ready, then degraded but still 200, then draining and 503', async () => {
  const service = await serveFile('[]')
  expect((await service.get('/readyz')).body).toMatchObject({ status: 'ready', store: 'memory', trouble: [] })
  writeFileSync(service.rulesPath, 'no rules')
  const trouble = [`rules: the file ${service.rulesPath} has wrong ones, the last good rules are in force`]
  await vi.waitFor(async () => {
    expect(await service.get('/readyz')).toMatchObject({ status: 200, body: { status: 'degraded', trouble } })
  }, 10_000)
  const { get, lifecycle } = await serveApp([])
  expect((await get('/readyz')).body).toEqual({ status: 'ready', rules_version: 1, store: 'memory', trouble: [] })
  lifecycle.draining = true
  expect(await get('/readyz')).toMatchObject({ status: 503, body: { status: 'draining' } })
})

test('/ lists every endpoint there is', async () => {
  const { get } = await serveApp([])
  const { body } = await get('/')
  const { paths } = (await get('/openapi.json')).body as { paths: Record<string, object> }
  for (const endpoint of Object.values(body.endpoints as Record<string, string>)) {
    const [method = '', path = ''] = endpoint.split(' ')
    expect(paths[path], endpoint).toHaveProperty(method.toLowerCase())
  }
})
