import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { demoRequest, demoRules } from '../src/demo/demo-requests.ts'
import { DEMO_PATH } from '../src/http/routes/demo.ts'
import { startServer } from '../src/service/server.ts'
import { emptyDataDir } from './databases.ts'
import { ADMIN_TOKEN, captureLog, clientOf, defaults, RULES, serveApp, serveEmbedded } from './service.ts'

describe('demo traffic', () => {
  test('is decided by rules made for it, which are removed when it ends', async () => {
    const service = await serveEmbedded({ adminToken: ADMIN_TOKEN })
    const started = await service.post(DEMO_PATH, { seconds: 60 }, ADMIN_TOKEN)
    expect(started).toMatchObject({ status: 200, body: { running: true } })
    const refused = /^sluice_limit_refused_total\{rule="demo_traffic_login"[^}]*\} [1-9]/m
    await expect
      .poll(async () => String((await service.get('/metrics')).body.text), { timeout: 20_000 })
      .toMatch(refused)
    expect(await demoRules()).toHaveLength(3)
    const stopped = await service.send(DEMO_PATH, { method: 'DELETE', headers: authorization })
    expect(stopped.status).toBe(204)
    expect(await demoRules()).toHaveLength(0)
    expect((await service.get(DEMO_PATH, ADMIN_TOKEN)).body).toEqual({ running: false, ends_at: null })

    async function demoRules(): Promise<readonly unknown[]> {
      const { body } = await service.get(`${RULES}?enabled=any&search=demo_traffic`, ADMIN_TOKEN)
      return body.rules as unknown[]
    }
  })

  test('ends with its node, and its rules are removed', async () => {
    const { log, logged } = captureLog()
    const dataDir = mkdtempSync(join(tmpdir(), 'sluice-demo-'))
    onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }))
    const server = await startServer({ ...defaults(), port: 0, dataDir, adminToken: ADMIN_TOKEN }, log)
    const started = await clientOf(server.address).post(DEMO_PATH, {}, ADMIN_TOKEN)
    await server.close()
    expect(started.status).toBe(200)
    expect(logged).toContainEqual(expect.objectContaining({ event: 'demo_ended' }))
  })

  test('of a killed process leaves no rules: the next start removes them once they have expired', async () => {
    const dataDir = await emptyDataDir()
    onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }))
    const settings = { ...defaults(), port: 0, dataDir, adminToken: ADMIN_TOKEN }
    const killed = await startServer(settings, captureLog().log)
    for (const rule of demoRules('2026-01-01T00:00:00Z')) {
      expect((await clientOf(killed.address).post(RULES, rule, ADMIN_TOKEN)).status).toBe(201)
    }
    await killed.close()
    const { log, logged } = captureLog()
    const next = await startServer(settings, log)
    onTestFinished(() => next.close())
    await vi.waitFor(() => expect(logged).toContainEqual(expect.objectContaining({ event: 'demo_ended' })), 20_000)
    const { body } = await clientOf(next.address).get(`${RULES}?enabled=any&search=demo_traffic`, ADMIN_TOKEN)
    expect(body.rules).toEqual([])
  })

  test('sends less from each address than address_flood of the example rules allows', () => {
    const perMinute = new Map<string, number>()
    for (let n = 1; n <= 200 * 60; n += 1) {
      const ip = String(demoRequest(n).ip)
      expect(ip).toMatch(/^(192\.0\.2|198\.51\.100|203\.0\.113)\.\d{1,3}$/)
      perMinute.set(ip, (perMinute.get(ip) ?? 0) + 1)
    }
    expect(Math.max(...perMinute.values())).toBeLessThan(700)
  })

  test('does not start if it would use up a limit that real clients share', async () => {
    const service = await serveEmbedded({ adminToken: ADMIN_TOKEN })
    await service.post(RULES, { rule_id: 'everyone', limit: 100, window_seconds: 60 }, ADMIN_TOKEN)
    expect(await service.post(DEMO_PATH, {}, ADMIN_TOKEN)).toMatchObject({
      ...{ status: 409, body: { code: 'DEMO_UNSAFE', detail: expect.stringContaining('everyone') } },
    })
  })

  test('needs rules that can be changed, and at most ten minutes', async () => {
    const app = await serveApp([])
    expect((await app.post(DEMO_PATH, {}, ADMIN_TOKEN)).status).toBe(409)
    expect((await app.post(DEMO_PATH, { seconds: 3600 }, ADMIN_TOKEN)).status).toBe(400)
  })
})

const authorization = { authorization: `Bearer ${ADMIN_TOKEN}` }
