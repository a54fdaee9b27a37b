import { expect, onTestFinished, test, vi } from 'vitest'
import type { Role } from '../../src/access/roles.ts'
import { createToken } from '../../src/access/token-table.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { load, startNode } from '../rollouts/fleet.ts'
import { RULES, ruleFile } from '../service.ts'
import { sluice } from './terminal.ts'

const postgres = usePostgres()
const AT = new Date('2026-01-01T00:00:00Z')

const GOOD = `rules:
  - rule_id: posts
    endpoint_pattern: /posts
    scope: per_user
    limit: 1000
    window_seconds: 1
`
const BAD = GOOD.replace('1000', '0')
const GUARD = '{"window":"1s","newly_denied":{"min_pairs":40,"hard_min_pairs":30}}'

async function started(approvals: number, guardEditsMs = 0) {
  const url = postgres().createDatabase()
  const node = await startNode({ database: url, dataDir: temporaryFolder(), guardEditsMs })
  const database = await openDatabase({ database: url, dataDir: '' })
  onTestFinished(() => database.close())
  const person = async (name: string, role: Role) => {
    const made = await createToken(database, { name, role, expiresAt: null }, 'sluice', AT)
    const env = { SLUICE_URL: node.address, SLUICE_TOKEN: made?.secret ?? '' }
    await vi.waitFor(async () => expect((await sluice(['rules', 'list'], { env })).code).toBe(0), 30_000)
    return (args: readonly string[], options: { colors?: boolean } = {}) => sluice(args, { env, ...options })
  }
  const [ann, ben] = [await person('ann', 'editor'), await person('ben', 'approver')]
  expect((await ann(['rules', 'apply', ruleFile(GOOD), '--yes'])).code).toBe(0)
  const set = await sluice(['approvals', 'set', String(approvals), '--database', url])
  expect(set).toEqual({ code: 0, out: '', told: `approvals: 0 → ${approvals}\n` })
  return { node, ann, ben, url }
}

test('propose, approve with a second token, watch: a bad change rolls itself back and prints the reason', async () => {
  const { node, ann, ben } = await started(1)
  load([node], { perTick: 20, keys: 200 })
  const steps = ['--step', 'shadow', '--step', 'canary:10%:5s']
  const proposed = await ann(['rules', 'propose', ruleFile(BAD), '--reason', 'lower it', ...steps, '--guard', GUARD])
  expect(proposed).toMatchObject({ code: 0, out: expect.stringMatching(/^~ posts\n {4}limit: 1000 → 0\nprop_\w+\n$/) })
  expect(proposed.told).toMatch(
    /prop_\w+: waits for approval: 1 required\nanother person approves it with: sluice rules approve prop_/,
  )
  const id = /prop_\w+/.exec(proposed.out)?.[0] ?? ''
  expect(await ann(['rules', 'approve', id])).toMatchObject({ code: 4 })
  const approved = await ben(['rules', 'approve', id])
  expect(approved.told).toMatch(/^prop_\w+: rolling out: step 1 of 2, shadow until promoted/)
  const watched = await ben(['rules', 'rollout', 'status', id], { colors: true })
  expect(watched.code).toBe(3)
  expect(watched.told).toMatch(
    /^prop_\w+: rolled back by the guard: rule posts: [\d.]+ % of \d+ paired requests newly denied/,
  )
  expect(watched.out).toContain('\u001b[') // redrawn in place
  expect(watched.out).toMatch(/RULE +PAIRS +NEWLY DENIED +WINDOWS ABOVE +KEYS/)
  expect(watched.out).toMatch(
    /fails at 5 % of 40 pairs in 2 of 3 windows of 1 s, or 50 % of 30 pairs at once, with 20 keys \(revert\)/,
  )
  const listed = await ben(['rules', 'rollout', 'status'])
  expect(listed.out).toMatch(new RegExp(`${id} +rolled back +posts +ann +rolled back by the guard`))
  expect((await node.get(`${RULES}/posts`)).body).toMatchObject({ limit: 1000 })
})

test('approvals set names the command that creates unrelated tokens, with its database', async () => {
  const { told } = await sluice(['approvals', 'set', '2', '--database', postgres().createDatabase()])
  expect(told).toContain('sluice token create <name> --role approver --database <url>\n')
})

test('apply creates a proposal when approvals are required, and waits for it', async () => {
  const { ann, ben, node } = await started(1)
  const file = ruleFile(GOOD.replace('1000', '900'))
  expect((await ann(['rules', 'plan', file])).told).toMatch(
    /rule changes need 1 approval: sluice rules apply creates a proposal/,
  )
  expect(await ann(['rules', 'apply', file, '--yes'])).toMatchObject({
    code: 2,
    told: expect.stringContaining('--reason: give a reason'),
  })
  const waiting = ann(['rules', 'apply', file, '--yes', '--reason', 'a bit less', '--step', 'shadow', '--wait'])
  const list = async () => (await ben(['rules', 'rollout', 'status', '--json'])).out
  await vi.waitFor(async () => expect(await list()).toContain('"draft"'), 10_000)
  const { proposals } = JSON.parse(await list()) as { proposals: { proposal_id: string }[] }
  const id = proposals[0]?.proposal_id ?? ''
  expect((await ben(['rules', 'approve', id, '--no-start'])).told).toMatch(/^prop_\w+: approved; waits for start\n$/)
  expect((await ann(['rules', 'rollout', 'start', id])).told).toMatch(/^prop_\w+: rolling out: step 1 of 1/)
  expect((await ann(['rules', 'rollout', 'pause', id, '--reason', 'lunch'])).told).toMatch(/paused at step 1 of 1/)
  expect((await ann(['rules', 'rollout', 'status', id, '--once'])).out).toMatch(
    /STEP +TIME\n +1 +shadow +by hand +paused, \d+ s/,
  )
  expect((await ann(['rules', 'rollout', 'promote', id])).told).toMatch(
    /^prop_\w+: applies to all keys; version \d+\n$/,
  )
  expect(await waiting).toMatchObject({
    code: 0,
    told: expect.stringMatching(/prop_\w+: applies to all keys; version \d+\n$/),
  })
  expect((await node.get(`${RULES}/posts`)).body).toMatchObject({ limit: 900 })
})

test('apply without approvals prints the guard of the edit, and waits for its end', async () => {
  const { ann, ben } = await started(0, 300_000)
  const file = (limit: string) => ruleFile(GOOD.replace('1000', limit))
  const edited = await ann(['rules', 'apply', file('900'), '--yes', '--json'])
  expect(JSON.parse(edited.out)).toMatchObject({
    version: expect.any(Number),
    guard: { proposal_id: expect.stringMatching(/^prop_/), until: expect.any(String) },
  })
  const endOf = async (action: string, limit: string, ...flags: string[]) => {
    const waiting = ann(['rules', 'apply', file(limit), '--yes', '--reason', limit, '--wait', ...flags])
    const guard = await vi.waitFor(async () => {
      const { out } = await ben(['rules', 'rollout', 'status', '--json'])
      const { proposals } = JSON.parse(out) as { proposals: { proposal_id: string }[] }
      expect(proposals[0]).toMatchObject({ state: 'rolling_out', reason: limit })
      return proposals[0]
    }, 10_000)
    expect((await ben(['rules', 'rollout', action, guard?.proposal_id ?? ''])).code).toBe(0)
    return waiting
  }
  expect(await endOf('promote', '800')).toMatchObject({
    code: 0,
    told: expect.stringMatching(
      /version \d+ is active\nguarded until [\dT:.-]+Z: it is reverted .*; sluice rules rollout status prop_\w+\n/,
    ),
  })
  const reverted = await endOf('abort', '700', '--json')
  expect(reverted.code).toBe(3)
  expect(JSON.parse(reverted.out)).toMatchObject({ guard: {}, proposal: { state: 'rolled_back' } })
})

test('reject and abort end a proposal; without approvals propose starts it', async () => {
  const { ann, ben } = await started(0)
  const file = ruleFile(GOOD.replace('1000', '900').concat('  - rule_id: more\n    limit: 1\n    window_seconds: 1\n'))
  const rollOut = async (...args: string[]) => {
    const { code, out } = await ann(['rules', 'propose', file, '--reason', 'x', '--json', ...args])
    expect(code).toBe(0)
    return JSON.parse(out) as { proposal_id: string; state: string }
  }
  const waiting = await rollOut('--no-start')
  expect(waiting.state).toBe('approved')
  const rejected = await ben(['rules', 'reject', waiting.proposal_id, '--reason', 'no'])
  expect(rejected.told).toMatch(/^prop_\w+: rejected by tok_\w+: no\n$/)
  const running = await rollOut('--step', 'shadow:10m')
  expect(running.state).toBe('rolling_out')
  const aborted = await ann(['rules', 'rollout', 'abort', running.proposal_id, '--reason', 'wrong day'])
  expect(aborted.told).toMatch(/^prop_\w+: rolled back by tok_\w+: wrong day\n$/)
})

test.each([
  [['rules', 'propose', 'missing.yaml'], '--reason: give a reason'],
  [
    ['rules', 'propose', 'x', '--reason', 'y', '--step', 'dark:1m'],
    '--step: use shadow, shadow:10m, canary:1% or canary:1%:10m',
  ],
  [['rules', 'propose', 'x', '--reason', 'y', '--guard', 'on'], '--guard: use off, or a JSON object'],
  [['rules', 'rollout', 'promote'], '<proposal_id>: give the id of a proposal'],
  [['rules', 'rollout', 'stop', 'x'], '<action>: use one of status, start, promote, pause, abort'],
  [['approvals', 'set', '11'], '<number>: give a whole number from 0 to 10'],
  [['approvals', 'set', '1'], 'give --database or --data-dir'],
])('%j names the mistake', async (args, message) => {
  expect(await sluice(args)).toMatchObject({ code: 2, told: expect.stringContaining(message) })
})
