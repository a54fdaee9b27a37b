import { expect, test } from 'vitest'
import { serveApp } from './service.ts'

test('/livez answers while the process lives', async () => {
  const { get, lifecycle } = await serveApp([])
  lifecycle.draining = true
  expect(await get('/livez')).toMatchObject({ status: 200, body: { status: 'alive' } })
})

test('/readyz: ready, then degraded but still 200, then draining and 503', async () => {
  const { get, metrics, lifecycle } = await serveApp([])
  expect((await get('/readyz')).body).toEqual({ status: 'ready', rules_version: 1, store: 'memory', trouble: [] })
  metrics.rulesValid = false
  const trouble = ['rules: the file is wrong, the last good rules are in force']
  expect(await get('/readyz')).toMatchObject({ status: 200, body: { status: 'degraded', trouble } })
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
