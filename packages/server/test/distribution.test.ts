import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { openDatabase } from '../src/db/open-database.ts'
import { type Server, startServer } from '../src/service/server.ts'
import type { Settings } from '../src/settings/settings.ts'
import { temporaryFolder, usePostgres } from './databases.ts'
import { ADMIN_TOKEN, captureLog, clientOf, defaults, RULE_SET } from './service.ts'

const MANY = 1_000_000
const HEADERS = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }

type Node = Server & { readonly logged: readonly Record<string, unknown>[] }

async function startNode(settings: Partial<Settings>): Promise<Node> {
  const { log, logged } = captureLog('info')
  const server = await startServer({ ...defaults(), adminToken: ADMIN_TOKEN, ...settings, port: 0 }, log)
  onTestFinished(() => server.close())
  return { ...server, logged }
}

/** Rules that all have the same, unreachable limit, so that a mix of two versions shows. */
function setOf(limit: number): object {
  const rules = Array.from({ length: sizeOf(limit) }, (_, index) => ({ rule_id: `r${index}`, limit, window: '1d' }))
  return { rules }
}

/** Some changes add rules, others remove them. */
function sizeOf(limit: number): number {
  return 8 + (limit % 5)
}

function importSet({ address }: Server, limit: number) {
  return clientOf(address).send(RULE_SET, { method: 'PUT', headers: HEADERS, body: JSON.stringify(setOf(limit)) })
}

function limitsIn({ limiter }: Server): number[] {
  return [...new Set(limiter.rules.map(({ limits }) => limits[0]?.limit ?? 0))]
}

/** Reads the rules of a node repeatedly, as checks do, and records them. */
function observe(node: Server): { readonly mixed: number[][]; readonly versions: number[] } {
  const mixed: number[][] = []
  const versions: number[] = []
  let stopped = false
  const look = () => {
    if (stopped) return
    const limits = limitsIn(node)
    const decided = node.limiter.checkSync({})?.outcomes.map(({ limit }) => limit) ?? []
    const isWhole = new Set([...limits, ...decided]).size === 1 && decided.length === sizeOf(limits[0] ?? 0)
    if (!isWhole) mixed.push([...limits, ...decided])
    if (versions.at(-1) !== node.limiter.version) versions.push(node.limiter.version)
    setTimeout(look, 1)
  }
  look()
  onTestFinished(() => {
    stopped = true
  })
  return { mixed, versions }
}

describe('nodes on one PostgreSQL', () => {
  const postgres = usePostgres()
  const settings = () => ({ database: postgres().createDatabase(), dataDir: temporaryFolder() })

  test('that start together on an empty database agree on one rule set', async () => {
    const shared = settings()
    const nodes = await Promise.all([startNode(shared), startNode(shared), startNode(shared)])
    expect(nodes.map(({ limiter }) => limiter.version)).toEqual([1, 1, 1])
    const [first, second, third] = nodes.map(({ limiter }) => JSON.stringify(limiter.rules))
    expect([second, third]).toEqual([first, first])
  })

  test('apply every change within a second, and never a mix of two versions', async () => {
    const shared = settings()
    const nodes = await Promise.all(Array.from({ length: 4 }, () => startNode(shared)))
    await importSet(nodes[0] as Server, MANY)
    await vi.waitFor(() => expect(nodes.map(limitsIn)).toEqual(nodes.map(() => [MANY])), { timeout: 10_000 })
    const observed = nodes.map(observe)
    for (let limit = MANY + 1; limit <= MANY + 40; limit += 1) {
      const { status, body } = await importSet(nodes[limit % nodes.length] as Server, limit)
      expect(status).toBe(200)
      const wanted = nodes.map(() => body.version)
      const reached = () => expect(nodes.map(({ limiter }) => limiter.version)).toEqual(wanted)
      await vi.waitFor(reached, { timeout: 10_000, interval: 5 })
    }
    for (const { mixed, versions } of observed) {
      expect(mixed).toEqual([])
      expect(versions).toEqual([...versions].sort((one, other) => one - other))
      expect(versions).toHaveLength(41)
    }
    for (const { address } of nodes) {
      const text = String((await clientOf(address).get('/metrics')).body.text)
      const [, within = 0] = /sluice_rules_propagation_seconds_bucket\{le="1"\} (\d+)/.exec(text) ?? []
      expect(Number(within)).toBeGreaterThanOrEqual(20) // all 40 on an idle machine; none without notifications
    }
  })

  test('that change it concurrently see only complete changes, and end with the same rules', async () => {
    const shared = settings()
    const nodes = await Promise.all(Array.from({ length: 4 }, () => startNode(shared)))
    await importSet(nodes[0] as Server, MANY)
    await vi.waitFor(() => expect(nodes.map(limitsIn)).toEqual(nodes.map(() => [MANY])), { timeout: 10_000 })
    const observed = nodes.map(observe)
    const changes = nodes.map(async (node, index) => {
      for (let turn = 0; turn < 10; turn += 1)
        expect((await importSet(node, MANY + 1 + 10 * turn + index)).status).toBe(200)
    })
    await Promise.all(changes)
    const reached = () => expect(nodes.map(({ limiter }) => limiter.version)).toEqual(nodes.map(() => 2 + 40))
    await vi.waitFor(reached, { timeout: 10_000, interval: 5 })
    const [first, ...others] = nodes.map(({ limiter }) => JSON.stringify(limiter.rules))
    expect(others).toEqual(others.map(() => first))
    for (const { mixed, versions } of observed) {
      expect(mixed).toEqual([])
      expect(versions).toEqual([...versions].sort((one, other) => one - other))
    }
  })

  test('keep deciding while it is down, start from the snapshot, and catch up when it is back', async () => {
    const shared = settings()
    const node = await startNode(shared)
    const leaver = await startNode(shared)
    await importSet(node, MANY)
    await vi.waitFor(() => expect(limitsIn(leaver)).toEqual([MANY]), { timeout: 10_000 })
    const { mixed } = observe(node)
    await postgres().down()
    onTestFinished(() => postgres().up())
    await leaver.close()
    const restarted = await startNode(shared)
    expect([limitsIn(restarted), restarted.limiter.version]).toEqual([[MANY], node.limiter.version])
    expect(await clientOf(restarted.address).check({ client_id: 'a' })).toMatchObject({ allowed: true, limit: MANY })
    expect((await clientOf(restarted.address).get('/readyz')).body).toMatchObject({
      status: 'degraded',
      reasons: [expect.stringMatching(/^rules: PostgreSQL at .* is unreachable; the active rules are \d+ s old$/)],
    })
    expect((await importSet(node, MANY + 1000)).body).toMatchObject({ status: 503, code: 'DATABASE_UNAVAILABLE' })
    expect(await clientOf(node.address).check({ client_id: 'a' })).toMatchObject({ allowed: true, limit: MANY })
    await postgres().up()
    await vi.waitFor(async () => expect((await importSet(node, MANY + 2000)).status).toBe(200), { timeout: 20_000 })
    await vi.waitFor(() => expect([node, restarted].map(limitsIn)).toEqual([[MANY + 2000], [MANY + 2000]]), {
      timeout: 20_000,
    })
    await vi.waitFor(async () => {
      expect((await clientOf(restarted.address).get('/readyz')).body).toMatchObject({ status: 'ready' })
    }, 20_000)
    expect(mixed).toEqual([])
  })

  test('keep their rules when invalid ones are written to the database by hand', async () => {
    const shared = settings()
    const node = await startNode(shared)
    await importSet(node, MANY)
    const database = await openDatabase(shared)
    onTestFinished(() => database.close())
    const edit = (limit: number) =>
      database.query(`
        UPDATE rules SET rule = jsonb_set(rule, '{limit}', '${limit}'), revision = revision + 1 WHERE rule_id = 'r3';
        UPDATE rules_in_force SET version = version + 1; NOTIFY sluice_rules`)
    await edit(-5)
    const ready = async () => (await clientOf(node.address).get('/readyz')).body.status
    await vi.waitFor(async () => expect(await ready()).toBe('degraded'), { timeout: 10_000 })
    expect(limitsIn(node)).toEqual([MANY])
    await edit(MANY)
    await vi.waitFor(async () => expect(await ready()).toBe('ready'), { timeout: 10_000 })
  })

  test('report why they cannot start when it is down and there is no snapshot', async () => {
    const shared = settings()
    await postgres().down()
    onTestFinished(() => postgres().up())
    await expect(startNode(shared)).rejects.toThrow(
      /^cannot read the rules from PostgreSQL at 127\.0\.0\.1:\d+\/sluice_\d+ /,
    )
  })
})
