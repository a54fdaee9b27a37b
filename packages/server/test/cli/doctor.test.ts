import { startRedis, startRedisCluster } from 'sluice/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import { migrate } from '../../src/db/migrate.ts'
import { openDatabase } from '../../src/db/open-database.ts'
import { clockFinding, type Finding } from '../../src/doctor/finding.ts'
import { usePostgres } from '../databases.ts'
import { ruleFile } from '../service.ts'
import { sluice } from './terminal.ts'

const GOOD = '- { rule_id: a, limit: 1, window: 1m }\n'
/** A busy machine is no reason to doubt Redis. */
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

test('all is well: exit code 0', async () => {
  const redis = await redisWith('--maxmemory', '100mb')
  const { code, findings } = await examined(redis)
  expect(findings.filter(({ health }) => health !== 'well')).toEqual([])
  expect(findings.map(({ about }) => about)).toEqual([
    ...['Node', 'Redis', 'Redis version', 'Redis role', 'Redis memory', 'Redis clock', 'rules'],
  ])
  expect(code).toBe(0)
})

describe('Redis', () => {
  test.each([
    [['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'], 3, 'wrong', 'maxmemory-policy noeviction'],
    [['--maxmemory', '100mb', '--maxmemory-policy', 'volatile-ttl'], 3, 'wrong', 'maxmemory-policy noeviction'],
    [['--maxmemory-policy', 'allkeys-lru'], 0, 'doubtful', 'maxmemory-policy noeviction'],
    [['--maxmemory', '1', '--maxmemory-policy', 'noeviction'], 3, 'wrong', 'raise maxmemory'],
    [[], 0, 'doubtful', 'CONFIG SET maxmemory'],
  ])('%j', async (settings, exitCode, health, fix) => {
    const { code, of } = await examined(await redisWith(...settings))
    expect(of('Redis memory')).toMatchObject({ health, fix: expect.stringContaining(fix) })
    expect(code).toBe(exitCode)
  })

  test('a replica and a node of a Cluster are no place for counters', async () => {
    const replica = await examined(await redisWith('--replicaof', '127.0.0.1', '65535'))
    expect(replica.of('Redis role')).toMatchObject({ health: 'wrong', fix: expect.stringContaining('127.0.0.1:65535') })
    const cluster = await examined(await redisWith('--cluster-enabled', 'yes'))
    expect(cluster.of('Redis role')).toMatchObject({
      health: 'wrong',
      fix: expect.stringContaining('redis+cluster://'),
    })
  })

  test('every primary of a Cluster is looked at, and every further store', async () => {
    const { addresses, stop } = await startRedisCluster()
    onTestFinished(stop)
    const url = `redis+cluster://${addresses.map(({ host, port }) => `${host}:${port}`).join(',')}`
    const [, further = ''] = await redisWith('--maxmemory', '100mb')
    const { of, findings } = await examined(['--redis', url, '--store', `hot=${further}`, ...PATIENT])
    expect(of('Redis hot memory')).toMatchObject({ health: 'well' })
    const roles = findings.filter(({ about }) => /^Redis 127\.0\.0\.1:\d+ role$/.test(about))
    expect(roles.map(({ found }) => found)).toEqual(['master', 'master', 'master'])
  })

  test('one that is not there, or wants a password, is told with what to do', async () => {
    const away = await examined([], { SLUICE_REDIS_URL: 'redis://:secret@127.0.0.1:65535' })
    expect(away.code).toBe(3)
    expect(away.of('Redis')).toEqual({
      about: 'Redis',
      health: 'wrong',
      found: '127.0.0.1:65535 does not answer: connect ECONNREFUSED 127.0.0.1:65535',
      fix: expect.stringContaining('start Redis'),
    })
    const closed = await examined(await redisWith('--requirepass', 'secret'))
    expect(closed.of('Redis')).toMatchObject({ health: 'wrong', found: expect.stringContaining('NOAUTH') })
  })
})

describe('PostgreSQL', () => {
  const postgres = usePostgres()

  test('tables that are missing, and then are not', async () => {
    const url = postgres().createDatabase()
    const before = await examined(['--database', url])
    expect(before.of('PostgreSQL')).toMatchObject({ health: 'well' })
    expect(before.of('PostgreSQL clock')).toMatchObject({ health: 'well' })
    expect(before.of('PostgreSQL tables')).toMatchObject({
      health: 'doubtful',
      found: expect.stringContaining('0001_'),
    })
    const database = await openDatabase({ database: url, dataDir: '' })
    await migrate(database)
    await database.close()
    expect((await examined(['--database', url])).of('PostgreSQL tables')).toMatchObject({ health: 'well' })
  })

  test('one that is not there is told without its password', async () => {
    const { code, of } = await examined(['--database', 'postgres://me:secret@127.0.0.1:65535/sluice'])
    expect(code).toBe(3)
    expect(of('PostgreSQL')).toMatchObject({
      health: 'wrong',
      found: expect.stringMatching(/^127\.0\.0\.1:65535\/sluice /),
    })
    expect(JSON.stringify(of('PostgreSQL'))).not.toContain('secret')
  })
})

describe('rules', () => {
  test('wrong and doubtful ones', async () => {
    const wrong = await examined(['--rules', ruleFile('- { rule_id: a, limit: -1 }\n')])
    expect(wrong).toMatchObject({ code: 3 })
    expect(wrong.of('rules')).toMatchObject({ health: 'wrong', fix: expect.stringContaining('sluice rules lint') })
    const doubtful = await examined([
      '--rules',
      ruleFile(`${GOOD}- { rule_id: b, limit: 1, window: 1m, enabled: false }\n`),
    ])
    expect(doubtful.of('rules')).toMatchObject({ health: 'doubtful' })
  })
})

test('for people: what to do stands below what was found', async () => {
  const args = ['doctor', '--rules', ruleFile(GOOD), ...(await redisWith('--maxmemory-policy', 'allkeys-lru'))]
  const { code, out, told } = await sluice(args)
  expect({ code, told }).toEqual({ code: 0, told: '0 wrong, 1 doubtful, 6 well\n' })
  expect(out).toMatch(
    /^ {2}doubtful +Redis memory +maxmemory-policy allkeys-lru, no maxmemory\n {6}keep what was counted: /m,
  )
})

test('settings that are wrong are told as serve tells them', async () => {
  const { code, told } = await sluice(['doctor', '--redsi', 'x'])
  expect(code).toBe(2)
  expect(told).toContain('--redsi: unknown flag; did you mean --redis?')
})

test.each([
  [0, 'well'],
  [1500, 'doubtful'],
  [-1500, 'doubtful'],
])('a clock that is %i ms off is %s', async (apartMs, health) => {
  const clock = { nowUs: () => 1e15 }
  expect(await clockFinding('clock', async () => 1e12 + apartMs, clock)).toMatchObject({ health })
})
