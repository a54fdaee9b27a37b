import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { PROPOSALS_PATH } from '../../src/rollouts/edit-hooks.ts'
import { usePostgres } from '../databases.ts'
import { type Running, start } from '../process.ts'
import { ADMIN_TOKEN, BATCH, clientOf, RULES } from '../service.ts'

const postgres = usePostgres()

/** The leader is killed while it holds the lock; the other node takes over and rolls back. */
test('a bad change rolls back although the node that evaluates the guard is killed', async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  const flags = ['--admin-token', ADMIN_TOKEN, '--database', postgres().createDatabase(), '--redis', redis.url]
  const nodes = [await start([...flags, '--guard-edits', '0']), await start([...flags, '--guard-edits', '0'])]
  const [one] = nodes.map(({ address }) => clientOf(address))
  const post = (path: string, body: object) => one?.post(path, body, ADMIN_TOKEN)
  await post(RULES, { rule_id: 'posts', endpoint_pattern: '/posts', scope: 'per_user', limit: 100, window_seconds: 1 })
  const guard = { window: '1s', newly_denied: { min_pairs: 40, hard_min_pairs: 30 } }
  const changes = [{ op: 'update', rule: { rule_id: 'posts', limit: 0 } }]
  const created = await post(PROPOSALS_PATH, { changes, reason: 'typo', guard, steps: [{ canary: '20%' }] })
  const id = String(created?.body.proposal_id)
  expect((await post(`${PROPOSALS_PATH}/${id}/start`, {}))?.status).toBe(200)
  const evaluator = await vi.waitFor(
    async () => {
      const texts = await Promise.all(
        nodes.map(async ({ address }) => (await clientOf(address).get('/metrics')).body.text),
      )
      const index = texts.findIndex((text) => /^sluice_rollout_evaluator 1$/m.test(String(text)))
      expect(index).toBeGreaterThanOrEqual(0)
      return nodes[index] as Running
    },
    { timeout: 20_000, interval: 100 },
  )
  evaluator.signal('SIGKILL')
  await evaluator.ended()
  const survivor = clientOf(nodes.find((node) => node !== evaluator)?.address ?? '')
  const checks = Array.from({ length: 100 }, (_, index) => ({ client_id: `user ${index}`, endpoint: '/posts' }))
  await vi.waitFor(
    async () => {
      await survivor.post(BATCH, { checks })
      const { body } = await survivor.get(`${PROPOSALS_PATH}/${id}`, ADMIN_TOKEN)
      expect(body).toMatchObject({ state: 'rolled_back', sentence: expect.stringContaining('newly denied') })
    },
    { timeout: 60_000, interval: 100 },
  )
  // The state is visible as soon as the transaction ends; nodes promise to apply it within 10 s.
  await vi.waitFor(
    async () => {
      const { body } = await survivor.post(BATCH, { checks })
      const limits = (body.results as { limit: number }[]).map(({ limit }) => limit)
      expect([...new Set(limits)]).toEqual([100]) // canary keys too
    },
    { timeout: 10_000, interval: 100 },
  )
})
