import { startRedis, startRedisCluster } from 'sluice/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import { migrate } from '../../src/db/migrate.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { clockFinding, type Finding } from '../../src/doctor/finding.ts'
import { usePostgres } from '../databases.ts'
import { ruleFile } from '../service.ts'
import { sluice } from './terminal.ts'

const GOOD = '- { rule_id: a, limit: 1, window: 1m }\n'
/** Tolerates a busy machine. */
const PATIENT = ['--store-deadline-ms', '10000']

async function examined(args: readonly string[], env: Record<string, string> = {}) {
  const { code, out, told } = await sluice(['doctor', '--json', '--rules', ruleFile(GOOD), ...args], { env })
  expect(told).toBe('')
  const findings = JSON.parse(out) as Finding[]
  return { code, of: (about: string) => findings.find((finding) => finding.about === about), findings }
}

async function redisWith(...settings: string[]): Promise<string[]> {
  const redis = await startRedis(settings)
  onTestFinished(() => redis.stop())
  return ['--redis', redis.url, ...PATIENT]
}

test('no problems: exit code 0', async () => {
  const redis = await redisWith('--maxmemory', '100mb')
  const { code, findings } = await examined(redis)
  expect(findings.filter(({ health }) => health !== 'ok')).toEqual([])
  expect(findings.map(({ about }) => about)).toEqual([
    ...['Node.js', 'Redis', 'Redis version', 'Redis role', 'Redis memory', 'Redis clock', 'rules'],
  ])
  expect(code).toBe(0)
})

describe('Redis', () => {
  test.each([
    [['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'], 3, 'error', 'maxmemory-policy noeviction'],
    [['--maxmemory', '100mb', '--maxmemory-policy', 'volatile-ttl'], 3, 'error', 'maxmemory-policy noeviction'],
    [['--maxmemory-policy', 'allkeys-lru'], 0, 'warning', 'maxmemory-policy noeviction'],
    [['--maxmemory', '1', '--maxmemory-policy', 'noeviction'], 3, 'error', 'raise maxmemory'],
    [[], 0, 'warning', 'CONFIG SET maxmemory'],
  ])('%j', async (settings, exitCode, health, fix) => {
    const { code, of } = await examined(await redisWith(...settings))
    expect(of('Redis memory')).toMatchObject({ health, fix: expect.stringContaining(fix) })
    expect(code).toBe(exitCode)
  })

  test('a replica and a single node of a Cluster are rejected', async () => {
    const replica = await examined(await redisWith('--replicaof', '127.0.0.1', '65535'))
    expect(replica.of('Redis role')).toMatchObject({ health: 'error', fix: expect.stringContaining('127.0.0.1:65535') })
    const cluster = await examined(await redisWith('--cluster-enabled', 'yes'))
    expect(cluster.of('Redis role')).toMatchObject({
      health: 'error',
      fix: expect.stringContaining('redis+cluster://'),
    })
  })

  test('every primary of a Cluster and every further store is checked', async () => {
    const { addresses, stop } = await startRedisCluster()
    onTestFinished(stop)
    const url = `redis+cluster://${addresses.map(({ host, port }) => `${host}:${port}`).join(',')}`
    const [, further = ''] = await redisWith('--maxmemory', '100mb')
    const { of, findings } = await examined(['--redis', url, '--store', `hot=${further}`, ...PATIENT])
    expect(of('Redis hot memory')).toMatchObject({ health: 'ok' })
    const roles = findings.filter(({ about }) => /^Redis 127\.0\.0\.1:\d+ role$/.test(about))
    expect(roles.map(({ found }) => found)).toEqual(['master', 'master', 'master'])
  })

  test('one that is unreachable or requires a password is reported with the fix', async () => {
    const away = await examined([], { SLUICE_REDIS_URL: 'redis://:secret@127.0.0.1:65535' })
    expect(away.code).toBe(3)
    expect(away.of('Redis')).toEqual({
      about: 'Redis',
      health: 'error',
      found: '127.0.0.1:65535 is unreachable: connect ECONNREFUSED 127.0.0.1:65535',
      fix: expect.stringContaining('start it, allow connections'),
    })
    const closed = await examined(await redisWith('--requirepass', 'secret'))
    expect(closed.of('Redis')).toMatchObject({ health: 'error', found: expect.stringContaining('NOAUTH') })
  })
})

describe('PostgreSQL', () => {
  const postgres = usePostgres()

  test('missing tables are reported until they exist', async () => {
    const url = postgres().createDatabase('')
    const before = await examined(['--database', url])
    expect(before.of('PostgreSQL')).toMatchObject({ health: 'ok' })
    expect(before.of('PostgreSQL clock')).toMatchObject({ health: 'ok' })
    expect(before.of('PostgreSQL tables')).toMatchObject({
      health: 'warning',
      found: expect.stringContaining('0001_'),
    })
    const database = await openDatabase({ database: url, dataDir: '' })
    await migrate(database)
    await database.close()
    expect((await examined(['--database', url])).of('PostgreSQL tables')).toMatchObject({ found: 'up to date' })
  })

  test('newer migrations: compatible ones are noted; others are an error, in the words of serve', async () => {
    const url = postgres().createDatabase('')
    const database = await openDatabase({ database: url, dataDir: '' })
    onTestFinished(() => database.close())
    await migrate(database)
    await database.query("INSERT INTO schema_migrations VALUES ('9001_view.sql', '', now(), true, '9.1.0')")
    const compatible = await examined(['--database', url])
    expect(compatible.of('PostgreSQL tables')).toMatchObject({
      health: 'ok',
      found: 'up to date, with compatible migrations of a newer version: 9001_view',
    })
    expect(compatible.code).toBe(0)
    await database.query("INSERT INTO schema_migrations VALUES ('9002_break.sql', '', now(), false, '9.2.0')")
    const { code, of } = await examined(['--database', url])
    const finding = of('PostgreSQL tables')
    expect({ code, health: finding?.health }).toEqual({ code: 3, health: 'error' })
    await expect(migrate(database)).rejects.toThrow(`${finding?.found}: ${finding?.fix}`)
  })

  test('an unreachable one is reported without its password', async () => {
    const { code, of } = await examined(['--database', 'postgres://me:secret@127.0.0.1:65535/sluice'])
    expect(code).toBe(3)
    expect(of('PostgreSQL')).toMatchObject({
      health: 'error',
      found: expect.stringMatching(/^127\.0\.0\.1:65535\/sluice /),
    })
    expect(JSON.stringify(of('PostgreSQL'))).not.toContain('secret')
  })
})

describe('rules', () => {
  test('invalid and suspicious rules', async () => {
    const wrong = await examined(['--rules', ruleFile('- { rule_id: a, limit: -1 }\n')])
    expect(wrong).toMatchObject({ code: 3 })
    expect(wrong.of('rules')).toMatchObject({ health: 'error', fix: expect.stringContaining('sluice rules lint') })
    const doubtful = await examined([
      '--rules',
      ruleFile(`${GOOD}- { rule_id: b, limit: 1, window: 1m, enabled: false }\n`),
    ])
    expect(doubtful.of('rules')).toMatchObject({ health: 'warning' })
  })
})

test('text output: the fix is below the finding', async () => {
  const args = ['doctor', '--rules', ruleFile(GOOD), ...(await redisWith('--maxmemory-policy', 'allkeys-lru'))]
  const { code, out, told } = await sluice(args)
  expect({ code, told }).toEqual({ code: 0, told: 'errors: 0, warnings: 1, ok: 6\n' })
  expect(out).toMatch(
    /^ {2}warning +Redis memory +maxmemory-policy allkeys-lru, no maxmemory\n {6}prevent eviction of live buckets: /m,
  )
})

test('invalid settings are reported as serve reports them', async () => {
  const { code, told } = await sluice(['doctor', '--redsi', 'x'])
  expect(code).toBe(2)
  expect(told).toContain('--redsi: unknown flag; did you mean --redis?')
})

test.each([
  [0, 'ok'],
  [1500, 'warning'],
  [-1500, 'warning'],
])('a clock that is %i ms off is %s', async (apartMs, health) => {
  const clock = { nowUs: () => 1e15 }
  expect(await clockFinding('clock', async () => 1e12 + apartMs, clock)).toMatchObject({ health })
})
