import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { readKeySecret } from '../src/events/key-secret.ts'
import { keyHash } from '../src/log.ts'
import { temporaryFolder } from './databases.ts'
import { preloading, run, start } from './process.ts'
import { clientOf, ruleFile } from './service.ts'

const TEN = '- { rule_id: ten, limit: 10, window: 1d, scope: per_user }\n'

async function freshRedis(): Promise<string> {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  return redis.url
}

describe('--workers', () => {
  test('several processes share a port, a limit and the key secret of the data folder, and exit together', async () => {
    const dataDir = temporaryFolder()
    const events = ['--events-sink', `jsonl=${join(dataDir, 'events.jsonl')}`]
    const patient = ['--store-deadline-ms', '5000', '--drain-ms', '0'] // the machine may be busy
    const args = ['--redis', await freshRedis(), '--workers', '2', '--rules', ruleFile(TEN)]
    const service = await start([...args, ...patient, ...events], { SLUICE_DATA_DIR: dataDir })
    await vi.waitFor(() => expect(listening(service.output().stderr)).toBe(2), { timeout: 20_000 })
    const { check } = clientOf(service.address, [])
    const answers = await Promise.all(Array.from({ length: 30 }, () => check({ client_id: 'a' })))
    expect(answers.filter(({ allowed }) => allowed)).toHaveLength(10)
    service.signal('SIGTERM')
    expect(await service.ended()).toMatchObject({ code: 0 })
    // Later processes read the same secret, so they find these hashes.
    const hash = `hmac:${keyHash(readKeySecret(undefined, dataDir))('user', 'a')}`
    expect(userIds(dataDir)).toEqual(Array.from({ length: 30 }, () => hash))
  })

  test('with invalid rules all exit with code 2', async () => {
    const rules = ruleFile('- { rule_id: a, limit: -1, window: 1d }\n')
    const { code, stderr } = run(['--redis', await freshRedis(), '--workers', '2', '--rules', rules])
    expect(code).toBe(2)
    expect(stderr).toContain('invalid rules')
  })

  test('a worker that is killed while it starts is logged and replaced', async () => {
    const first =
      "import cluster from 'node:cluster'; if (cluster.worker?.id === 1) process.kill(process.pid, 'SIGKILL')"
    const args = ['--redis', await freshRedis(), '--workers', '2', '--rules', ruleFile(TEN)]
    const service = await start(args, preloading(first))
    await vi.waitFor(() => expect(listening(service.output().stderr)).toBe(2), { timeout: 20_000 })
    expect(service.output().stderr).toMatch(/"event":"worker_exited",.*"signal":"SIGKILL"/)
  })

  test('a worker that does not stop is killed five seconds after the drain', async () => {
    const patient = ['--store-deadline-ms', '5000', '--drain-ms', '0']
    const args = ['--redis', await freshRedis(), '--workers', '2', '--rules', ruleFile(TEN), ...patient]
    const service = await start(args)
    await vi.waitFor(() => expect(listening(service.output().stderr)).toBe(2), { timeout: 20_000 })
    const [stuck] = /(?<="pid":)\d+(?=,.*"listening")/.exec(service.output().stderr) ?? []
    process.kill(Number(stuck), 'SIGSTOP')
    service.signal('SIGTERM')
    const { code, stderr } = await service.ended()
    expect(code).toBe(1)
    expect(stderr).toMatch(
      new RegExp(`"event":"worker_killed","pid":${stuck},"msg":"worker did not stop in time; killed"`),
    )
  })

  test('unfinished TLS handshakes end at every port of the workers, and delay no stop', {
    timeout: 90_000,
  }, async () => {
    const pem = (name: string) => fileURLToPath(new URL(`./fixtures/tls/${name}`, import.meta.url))
    const tls = ['--tls-cert', pem('server.pem'), '--tls-key', pem('server.key')]
    const own = ['--grpc-port', '0', '--drain-ms', '0', '--rules', ruleFile(TEN)]
    const service = await start(['--redis', await freshRedis(), '--workers', '2', ...tls, ...own])
    const grpc = /gRPC listens on (\S+)/.exec(service.output().stdout)?.[1]
    const ports = [service.address, `https://${grpc}`].map((address) => Number(new URL(address).port))
    const openAll = () => {
      const ended = [...ports, ...ports, ...ports].map((port) => {
        const socket = connect(port, '127.0.0.1')
          .on('error', () => {})
          .resume()
        onTestFinished(() => void socket.destroy())
        return new Promise((resolve) => socket.once('close', resolve))
      })
      return Promise.all(ended)
    }
    await vi.waitFor(() => expect(listening(service.output().stderr)).toBe(2), { timeout: 20_000 })
    await openAll()
    const cut = openAll()
    service.signal('SIGTERM')
    expect(await service.ended()).toMatchObject({ code: 0 })
    await cut
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

/** The user of each event in the files of both workers. */
function userIds(folder: string): string[] {
  const lines = ['events-1.jsonl', 'events-2.jsonl'].flatMap((name) =>
    readFileSync(join(folder, name), 'utf8').split('\n').filter(Boolean),
  )
  return lines.map((line) => (JSON.parse(line) as { user: { id: string } }).user.id)
}
