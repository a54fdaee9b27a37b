import { writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { ADMIN_TOKEN, ruleFile, serveFile, serveSettings } from '../service.ts'
import { sluice } from './terminal.ts'

const postgres = usePostgres()

const ONE = `rules:
  - rule_id: demo
    endpoint_pattern: /demo
    scope: per_user
    limit: 5
    window_seconds: 10
  - rule_id: old
    limit: 100
    window_seconds: 60
`
const TWO = `rules:
  - rule_id: demo
    endpoint_pattern: /demo
    scope: per_user
    limit: 10
    window_seconds: 10
    burst: 20
  - rule_id: uploads
    endpoint_pattern: /files/**
    limit: 3
    window_seconds: 60
`
const PLAN = `~ demo
    limit: 5 → 10
    burst: (unset) → 20
- old
    limit: 100
    window_seconds: 60
+ uploads
    endpoint_pattern: /files/**
    limit: 3
    window_seconds: 60
`

/** A node on a database of its own that enforces ONE, and a file with TWO. */
async function node() {
  const client = await serveSettings({ database: postgres().createDatabase(), dataDir: temporaryFolder() })
  const env = { SLUICE_URL: client.address, SLUICE_TOKEN: ADMIN_TOKEN }
  const { code, out, told } = await sluice(['rules', 'apply', ruleFile(ONE), '--yes', '--json'], { env })
  expect({ code, told }).toEqual({ code: 0, told: '' })
  const { version } = JSON.parse(out) as { version: number }
  const run = (args: readonly string[], answer?: boolean) =>
    sluice(args, answer === undefined ? { env } : { env, answer })
  return { ...client, env, version, run, file: ruleFile(TWO) }
}

describe('plan', () => {
  test('shows what would change, rule by rule and field by field, and changes nothing', async () => {
    const { run, version, file } = await node()
    for (const args of [
      ['rules', 'plan', file],
      ['rules', 'apply', file, '--dry-run'],
    ]) {
      const { code, out, told } = await run(args)
      expect({ code, told }).toEqual({ code: 0, told: `version ${version}: 1 created, 1 updated, 1 deleted\n` })
      expect(sorted(out)).toEqual(sorted(PLAN))
    }
    const { out } = await run(['rules', 'plan', file, '--json'])
    expect(JSON.parse(out)).toMatchObject({
      version,
      changes: [
        { rule_id: 'demo', change: 'updated', before: { limit: 5 }, after: { limit: 10, burst: 20 } },
        { rule_id: 'old', change: 'deleted' },
        { rule_id: 'uploads', change: 'created' },
      ],
    })
    const asJson = ruleFile(JSON.stringify([{ rule_id: 'demo', limit: 1, window: '1s' }]), 'rules.json')
    expect((await run(['rules', 'plan', asJson])).told).toContain('0 created, 1 updated, 1 deleted')
    const unchanged = await run(['rules', 'plan', ruleFile(ONE)])
    expect(unchanged).toEqual({ code: 0, out: '', told: `version ${version}: no changes\n` })
  })

  test('--detailed-exitcode: 0 no changes, 2 something to change, 1 any error', async () => {
    const { run, env, file } = await node()
    const planned = async (args: readonly string[]) => (await run(['rules', 'plan', ...args])).code
    expect(await planned([file, '--detailed-exitcode'])).toBe(2)
    expect(await planned([file, '--detailed-exitcode', '--json'])).toBe(2)
    expect(await planned([ruleFile(ONE), '--detailed-exitcode'])).toBe(0)
    const wrong = ruleFile('- { rule_id: a, limit: -1, window: 1m }')
    const errors = [
      [wrong],
      ['/nowhere.yaml'],
      [file, '--bogus'],
      [],
      [file, '--token', 'another'],
      [file, '--url', 'http://127.0.0.1:65535'],
    ]
    for (const args of errors) expect(await planned([...args, '--detailed-exitcode']), args.join(' ')).toBe(1)
    expect(await planned([file, '--detailed-exitcode=yes'])).toBe(1)
    const codes = [await planned([file]), await planned([wrong]), await planned([file, '--token', 'another'])]
    expect(codes, 'as ever without it').toEqual([0, 2, 4])
    const told = await sluice(['rules', 'plan', '-', '--detailed-exitcode'], { env, input: TWO })
    expect(told, 'from standard input').toMatchObject({ code: 2, told: expect.stringContaining('1 created') })
  })

  test('colours are used on terminals only', async () => {
    const { env, file } = await node()
    expect((await sluice(['rules', 'plan', file], { env, colors: true })).out).toContain('\u001b[32m+ uploads\u001b[0m')
  })

  test('errors are reported with their lines, before any request', async () => {
    const path = ruleFile('- { rule_id: a,\n limit: -1, window: 1m }')
    for (const verb of ['plan', 'apply']) {
      const { code, told } = await sluice(['rules', verb, path, '--url', 'http://127.0.0.1:65535'])
      expect(code).toBe(2)
      expect(told).toContain(`sluice rules ${verb}: invalid rules\n${path}:2: error: rules[0].limit: give`)
    }
  })
})

describe('apply', () => {
  test('asks for confirmation, and changes nothing without a yes', async () => {
    const { run, version, file, check } = await node()
    const withoutTerminal = await run(['rules', 'apply', file])
    expect(withoutTerminal).toMatchObject({ code: 2, told: expect.stringContaining('without a terminal: pass --yes') })
    const no = await run(['rules', 'apply', file], false)
    expect(no).toMatchObject({ code: 3, told: expect.stringContaining('Change the rules?') })
    expect(await check({ client_id: 'a', endpoint: '/demo' })).toMatchObject({ limit: 5 })
    const yes = await run(['rules', 'apply', file, '--reason', 'more for all'], true)
    expect(yes.code).toBe(0)
    expect(yes.told).toMatch(new RegExp(`version ${version + 1} is active\nguarded until`))
    expect(await check({ client_id: 'a', endpoint: '/demo' }), 'at once on this node').toMatchObject({ limit: 10 })
  })

  test('fails if the rules changed since the plan: exit code 5, and nothing changes', async () => {
    const { run, version, file } = await node()
    await run(['rules', 'apply', ruleFile('rules: []\n'), '--yes'])
    const late = await run(['rules', 'apply', file, '--if-version', String(version), '--yes'])
    expect(late.code).toBe(5)
    expect(late.told).toContain(`the current version is ${version + 1}`)
    expect(late.told).toContain(`--if-version: version ${version} is no longer active`)
    expect(late.told).not.toContain('If-Match')
    expect((await run(['rules', 'export'])).out).toBe('rules: []\n')
  })

  test('fails if the rules change between the plan and the yes', async () => {
    const { env, run, file } = await node()
    const meanwhile = async () => {
      await run(['rules', 'apply', ruleFile('rules: []\n'), '--yes'])
      return true
    }
    const { code, told } = await sluice(['rules', 'apply', file], { env, answer: meanwhile })
    expect(code).toBe(5)
    expect(told).toMatch(/the current version is \d+\.\n {2}Nothing was written: the rules changed since the plan/)
    expect(told).not.toContain('If-Match')
    expect((await run(['rules', 'export'])).out).toBe('rules: []\n')
  })

  test('a node with rules in a file names the file: exit code 5', async () => {
    const { address, rulesPath } = await serveFile(ONE)
    const { code, told } = await sluice([
      'rules',
      'apply',
      rulesPath,
      '--yes',
      '--url',
      address,
      '--token',
      ADMIN_TOKEN,
    ])
    expect(code).toBe(5)
    expect(told).toContain('409 RULES_FROM_FILE')
    expect(told).toContain(rulesPath)
  })
})

describe('list, show and export', () => {
  test('list has a row per rule', async () => {
    const { run, version } = await node()
    const { code, out, told } = await run(['rules', 'list'])
    expect({ code, told }).toEqual({ code: 0, told: `version ${version}: 2 rules\n` })
    expect(out).toMatch(/^ {2}demo +5\/10s +per_user +any \/demo$/m)
    expect((await run(['rules', 'list', '--search', 'dem'])).out).not.toContain('old')
  })

  test('disabled rules are listed on demand', async () => {
    const { run } = await node()
    await run(['rules', 'apply', ruleFile('- { rule_id: "off", limit: 1, window: 1m, enabled: false }\n'), '--yes'])
    expect((await run(['rules', 'list'])).out).not.toContain('off')
    expect((await run(['rules', 'list', '--all'])).out).toMatch(/^ {2}off \(disabled\) /m)
  })

  test('show prints the rule, and suggests the nearest id', async () => {
    const { run } = await node()
    const { out } = await run(['rules', 'show', 'demo'])
    expect(out).toBe(ONE.split('  - rule_id: old')[0])
    expect(JSON.parse((await run(['rules', 'show', 'demo', '--json'])).out)).toMatchObject({
      rule_id: 'demo',
      limit: 5,
    })
    const { code, told } = await run(['rules', 'show', 'dmeo'])
    expect({ code, told }).toEqual({
      code: 2,
      told: 'sluice rules show: there is no rule "dmeo"; did you mean "demo"?\n',
    })
  })

  test('apply accepts the output of export: no changes', async () => {
    const { run, file } = await node()
    await run(['rules', 'apply', file, '--yes'])
    const { out } = await run(['rules', 'export'])
    writeFileSync(file, out)
    expect((await run(['rules', 'plan', file])).told).toContain('no changes')
    expect(JSON.parse((await run(['rules', 'export', '--json'])).out).rules).toHaveLength(2)
  })
})

describe('history, diff and rollback', () => {
  test('history lists who, when and why, newest first', async () => {
    const { run, version, file } = await node()
    await run(['rules', 'apply', file, '--yes', '--reason', 'more for all'])
    const { out } = await run(['rules', 'history', '--limit', '2'])
    const [head, newest, before] = out.split('\n')
    expect(head).toMatch(/^ {2}VERSION +CREATED +ACTOR +RULES +REASON$/)
    expect(newest).toMatch(new RegExp(`^  ${version + 1} +\\d{4}-\\S+Z +admin-token +2 +more for all$`))
    expect(before).toMatch(new RegExp(`^  ${version} +`))
  })

  test('history names the token that made a version, also after it was revoked', async () => {
    const { run, env, file } = await node()
    const made = JSON.parse((await run(['token', 'create', 'ci of the shop', '--role', 'editor', '--json'])).out)
    const { token, token_id: id } = made as { token: string; token_id: string }
    await sluice(['rules', 'apply', file, '--yes'], { env: { ...env, SLUICE_TOKEN: token } })
    await run(['token', 'revoke', id, '--yes'])
    const { out } = await run(['rules', 'history', '--limit', '1'])
    expect(out).toContain(` ci of the shop (${id}) `)
    const [newest] = JSON.parse((await run(['rules', 'history', '--limit', '1', '--json'])).out) as object[]
    expect(newest).toMatchObject({ actor: id, actor_name: 'ci of the shop' })
  })

  test('diff compares versions and files in any combination', async () => {
    const { run, version, file } = await node()
    await run(['rules', 'apply', file, '--yes'])
    const one = ruleFile(ONE)
    const ways = [
      [String(version), String(version + 1)],
      [String(version)],
      [one, file],
      [String(version), file],
      [one],
    ]
    for (const way of ways) {
      const { code, out, told } = await run(['rules', 'diff', ...way])
      expect({ code, told }, way.join(' ')).toEqual({ code: 0, told: '1 created, 1 updated, 1 deleted\n' })
      expect(out).toMatch(/^~ demo\n {4}limit: 5 → 10$/m)
    }
    expect(await sluice(['rules', 'diff', one, file]), 'two files need no node').toMatchObject({ code: 0 })
  })

  test('rollback shows the changes, asks for confirmation, and creates a new version', async () => {
    const { run, version, file, check } = await node()
    await run(['rules', 'apply', file, '--yes'])
    const shown = await run(['rules', 'rollback', String(version), '--dry-run'])
    expect(shown.out).toMatch(/^~ demo$/m)
    expect(shown.out).toMatch(/^ {4}limit: 10 → 5$/m)
    const { code, told } = await run(['rules', 'rollback', String(version), '--yes', '--reason', 'too many'])
    expect({ code, told }).toMatchObject({
      code: 0,
      told: expect.stringContaining(`version ${version + 2} is active`),
    })
    expect(await check({ client_id: 'a', endpoint: '/demo' })).toMatchObject({ limit: 5 })
  })

  test('unknown versions and missing files: exit code 2', async () => {
    const { run } = await node()
    const mistakes = [
      [['rollback', '999', '--yes'], 'VERSION_UNKNOWN'],
      [['rollback', 'last'], '<version>: give the number of a version (got "last")'],
      [['diff', '999'], 'VERSION_UNKNOWN'],
      [['diff', 'nowhere.yaml'], 'give a readable file'],
      [['history', '--limit', '0'], '--limit: give a whole number from 1 to 1000'],
    ] as const
    for (const [args, message] of mistakes) {
      expect(await run(['rules', ...args])).toMatchObject({ code: 2, out: '', told: expect.stringContaining(message) })
    }
  })
})

test('every command of rules is denied without a token: exit code 4', async () => {
  const { address } = await node()
  const file = ruleFile(TWO)
  for (const args of [
    ['list'],
    ['show', 'a'],
    ['export'],
    ['history'],
    ['diff', '1'],
    ['plan', file],
    ['apply', file],
  ]) {
    expect(await sluice(['rules', ...args, '--url', address]), args.join(' ')).toMatchObject({ code: 4, out: '' })
  }
})

/** The order of fields is not guaranteed. */
function sorted(text: string): string[] {
  return text.split('\n').sort()
}

test('an edit that the guard cannot compare is refused with the fix; --guard off applies it', async () => {
  const { run } = await node()
  const file = ruleFile(`${ONE}  - rule_id: jobs
    algorithm: concurrency
    limit: 3
    window_seconds: 60
`)
  const apply = (...flags: string[]) => run(['rules', 'apply', file, '--yes', ...flags])
  const refused = await apply()
  expect(refused.code).not.toBe(0)
  expect(refused.told).toContain('jobs.algorithm: the algorithm concurrency cannot be charged twice')
  expect(refused.told).toContain('--guard off --reason')
  expect((await apply('--guard', '{"p99":{"ms":300}}', '--reason', 'x')).told).toContain('--guard: use off')
  expect((await apply('--guard', 'off', '--reason', 'few jobs')).told).toMatch(/not guarded: the request turned it off/)
  const { out } = await run(['rules', 'history', '--limit', '2', '--json'])
  const [jobs, first] = (JSON.parse(out) as { version: number }[]).map(({ version }) => String(version))
  const rollBack = (version = '', ...flags: string[]) => run(['rules', 'rollback', version, '--yes', ...flags])
  expect((await rollBack(first)).code).toBe(0)
  expect((await rollBack(jobs)).told).toContain('--guard off --reason')
  expect((await rollBack(jobs, '--guard', 'off', '--reason', 'x')).told).toMatch(
    /not guarded: the request turned it off/,
  )
})
