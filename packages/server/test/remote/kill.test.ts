// kill -9 of a remote node, of the service and of Redis, in turn, under load: the units that are admitted in the whole
// time never exceed the limit. Every process prints each admission before it continues.

import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test, vi } from 'vitest'
import { freePort } from '../../../sluice/src/testing/free-port.ts'
import { launchRedis } from '../../../sluice/src/testing/redis-process.ts'
import { start } from '../process.ts'
import { ruleFile } from '../service.ts'

const LIMIT = 1200
const RULES = JSON.stringify(
  [
    { rule_id: 'window', algorithm: 'fixed_window', endpoint_pattern: '/window' },
    { rule_id: 'bucket', algorithm: 'token_bucket', endpoint_pattern: '/bucket' },
  ].map((rule) => ({ ...rule, limit: LIMIT, window: '10d', scope: 'per_user', on_fail: 'closed' })),
)
const CLIENT = fileURLToPath(new URL('../fixtures/remote-client.mjs', import.meta.url))
const POLL = { timeout: 60_000, interval: 20 }
/** Redis must not lose units that it has counted. */
const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always']

type Node = { readonly child: ChildProcess; readonly counts: { admitted: number; refused: number } }

function startNode(url: string, path: string): Node {
  const child = spawn(process.execPath, [CLIENT, url, path], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  const counts = { admitted: 0, refused: 0 }
  child.stdout.on('data', (text: Buffer) => {
    for (const byte of text) counts[byte === 0x2b ? 'admitted' : 'refused'] += 1
  })
  return { child, counts }
}

test.each(['/window', '/bucket'])(
  'no kill of node, service or Redis makes %s admit more than the limit',
  async (path) => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-kill-'))
    const [redisPort, grpcPort] = [await freePort(), await freePort()]
    const startRedis = () => launchRedis(folder, redisPort, DURABLE)
    let redis = await startRedis()
    onTestFinished(() => redis.stop())
    const rules = ruleFile(RULES)
    const startService = () =>
      start(['--redis', redis.url, '--rules', rules, '--grpc-port', String(grpcPort), '--store-deadline-ms', '1000'])
    let service = await startService()
    const url = `http://127.0.0.1:${grpcPort}`
    const nodes = [startNode(url, path), startNode(url, path)]
    const admitted = () => nodes.reduce((sum, { counts }) => sum + counts.admitted, 0)
    const untilMore = async (units: number) => {
      const goal = admitted() + units
      await vi.waitFor(() => expect(admitted()).toBeGreaterThanOrEqual(goal), POLL)
    }
    await untilMore(200)
    nodes[0]?.child.kill('SIGKILL')
    nodes.push(startNode(url, path))
    await untilMore(200)
    service.signal('SIGKILL')
    await service.ended()
    service = await startService()
    await untilMore(150)
    process.kill(redis.pid, 'SIGKILL')
    redis = await vi.waitFor(startRedis, POLL) // the port is free once the process is gone
    const live = nodes.slice(1)
    const exhausted = async () => {
      const before = live.map(({ counts }) => ({ ...counts }))
      await vi.waitFor(() => {
        for (const [index, { counts }] of live.entries())
          expect(counts.refused).toBeGreaterThan((before[index]?.refused ?? 0) + 50)
      }, POLL)
      return live.every(({ counts }, index) => counts.admitted === before[index]?.admitted)
    }
    await vi.waitFor(async () => expect(await exhausted()).toBe(true), { ...POLL, timeout: 90_000 })
    expect(admitted()).toBeLessThanOrEqual(LIMIT + 1) // the bucket refills one unit in 12 minutes
    expect(admitted(), 'leases of killed processes are lost').toBeGreaterThan(LIMIT / 3)
  },
  180_000,
)
