import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { run, start } from './process.ts'
import { clientOf, ruleFile } from './service.ts'

const TEN = '- { rule_id: ten, limit: 10, window: 1d, scope: per_user }\n'

async function freshRedis(): Promise<string> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return redis.url
}

describe('--workers', () => {
  test('several processes share one port and one limit, and exit together', async () => {
    const patient = ['--store-deadline-ms', '5000', '--drain-ms', '0'] // the machine may be busy
    const args = ['--redis', await freshRedis(), '--workers', '2', '--rules', ruleFile(TEN)]
    const service = await start([...args, ...patient])
    await vi.waitFor(() => expect(listening(service.output().stderr)).toBe(2), { timeout: 20_000 })
    const { check } = clientOf(service.address, [])
    const answers = await Promise.all(Array.from({ length: 30 }, () => check({ client_id: 'a' })))
    expect(answers.filter(({ allowed }) => allowed)).toHaveLength(10)
    service.signal('SIGTERM')
    expect(await service.ended()).toMatchObject({ code: 0 })
  })

  test('with invalid rules all exit with code 2', async () => {
    const rules = ruleFile('- { rule_id: a, limit: -1, window: 1d }\n')
    const { code, stderr } = run(['--redis', await freshRedis(), '--workers', '2', '--rules', rules])
    expect(code).toBe(2)
    expect(stderr).toContain('invalid rules')
  })

  test('requires Redis, and says so', () => {
    const { code, stderr } = run(['--workers', '2'])
    expect(code).toBe(2)
    expect(stderr).toContain('--workers: remove it, or give --redis')
  })
})

/** Number of workers that have logged that they listen: each does once. */
function listening(stderr: string): number {
  return stderr.split('\n').filter((line) => line.includes('"listening"')).length
}
