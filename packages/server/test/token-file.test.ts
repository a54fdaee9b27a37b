import { readFileSync, writeFileSync } from 'node:fs'
import { LimiterError } from 'sluice'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { readTokenFile } from '../src/access/token-file.ts'
import { KILL_SWITCH_PATH } from '../src/http/routes/kill-switch.ts'
import { TOKENS_PATH } from '../src/http/routes/tokens.ts'
import { run, start } from './process.ts'
import { ADMIN_TOKEN, CHECK, clientOf, RULES, ruleFile, serveFile } from './service.ts'

const RULE = '- { rule_id: one, limit: 1000, window: 1d }\n'
const PATIENTLY = { timeout: 10_000, interval: 20 }
const [GATEWAY, VIEWER, APPROVER] = ['0123456789abcdef-gateway', '0123456789abcdef-viewer', '0123456789abcdef-approver']

const TOKENS = `
tokens:
  - { name: gateway, role: check, token: ${GATEWAY} }
  - { name: grafana, role: viewer, token: ${VIEWER}, expires_at: 2130-01-01T00:00:00Z }
  - { name: on call, role: approver, token: ${APPROVER}, expires_at: null }
`

describe('a node without a database', () => {
  test('knows the tokens of a file, each with its role', async () => {
    const tokensFile = ruleFile(TOKENS, 'tokens.yaml')
    const { post, get } = await serveFile(RULE, { tokensFile, checks: 'token', adminToken: undefined })
    const check = async (token?: string) => (await post(CHECK, {}, token)).status
    expect([await check(), await check(`${GATEWAY}x`), await check(GATEWAY)]).toEqual([401, 401, 200])
    expect(await check(VIEWER), 'a viewer may not check').toBe(403)
    expect([(await get(RULES, GATEWAY)).status, (await get(RULES, VIEWER)).status]).toEqual([403, 200])
    const killed = await post(KILL_SWITCH_PATH, { rule_id: 'one', on: true }, APPROVER)
    expect(killed).toMatchObject({ status: 200, body: { kills: [{ by: 'file:on call' }] } })
  })

  test('follows the file: edits apply without a restart, and an invalid edit changes nothing', async () => {
    const tokensFile = ruleFile(TOKENS, 'tokens.yaml')
    const { post, logged } = await serveFile(RULE, { tokensFile, checks: 'token' })
    const check = async (token: string) => (await post(CHECK, {}, token)).status
    const next = 'the-next-token-of-the-gateway'
    writeFileSync(tokensFile, `- { name: next, role: check, token: ${next} }\n`)
    await vi.waitFor(async () => expect(await check(next)).toBe(200), PATIENTLY)
    expect(await check(GATEWAY)).toBe(401)
    writeFileSync(tokensFile, `- { name: next, role: chek, token: ${next} }\n`)
    const errors = () => logged.filter(({ level }) => level === 'error')
    await vi.waitFor(() => expect(errors()).toHaveLength(1), PATIENTLY)
    expect(errors()).toMatchObject([{ reasons: [expect.stringContaining('tokens[0].role: use one of check')] }])
    expect(await check(next)).toBe(200)
    expect(JSON.stringify(logged)).not.toContain(next)
  })

  test('says that tokens are in the file, not in a database', async () => {
    const { get } = await serveFile(RULE, { tokensFile: ruleFile(TOKENS, 'tokens.yaml') })
    expect(await get(TOKENS_PATH, ADMIN_TOKEN)).toMatchObject({
      status: 409,
      body: { detail: expect.stringContaining('--tokens-file') },
    })
  })
})

describe('long YAML texts, which a process parses one at a time', () => {
  const names = ['a', 'b', 'c', 'd', 'e']
  const tokens = names.map((name) => `0123456789abcdef-viewer-${name}`)
  const lines = names.map((name, index) => `- { name: ${name}, role: viewer, token: ${tokens[index]} }\n`)
  const text = `rule_id: one\nlimit: 10\nwindow: 1d\nwhen: { country: [${'"NL", '.repeat(1000)}] }\n`

  async function serve() {
    const { address } = await start([
      '--rules',
      ruleFile(RULE),
      '--tokens-file',
      ruleFile(lines.join(''), 'tokens.yaml'),
    ])
    return async (token: string) => {
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/yaml' }
      const response = await fetch(`${address}${RULES}/validate`, { method: 'POST', headers, body: text })
      const { code, detail } = (await response.json()) as Record<string, unknown>
      return { status: response.status, code, detail }
    }
  }

  test('of one token five wait at most: others still get in', async () => {
    const validate = await serve()
    const [greedy = '', ...others] = tokens
    const [flood, rest] = await Promise.all([
      Promise.all(Array.from({ length: 24 }, () => validate(greedy))),
      Promise.all(others.map(validate)),
    ])
    expect(rest.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect(flood.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(5)
    const refused = flood.filter(({ status }) => status !== 200)
    expect(refused.length).toBeGreaterThan(0)
    for (const one of refused) {
      const detail =
        'This token has 5 YAML texts waiting on this process, the most for one token: wait for one of them.'
      expect(one).toEqual({ status: 429, code: 'TOO_MANY_TEXTS_OF_TOKEN', detail })
    }
    expect(await validate(greedy), 'later').toMatchObject({ status: 200 })
  })

  test('twenty wait at most', async () => {
    const validate = await serve()
    const all = await Promise.all(Array.from({ length: 5 }, () => tokens.map(validate)).flat())
    expect(all.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(20)
    const refused = all.filter(({ status }) => status !== 200)
    expect(refused.length).toBeGreaterThan(0)
    for (const one of refused) expect(one).toMatchObject({ status: 503, code: 'TOO_MANY_TEXTS' })
  })
})

test('the tokens file in access.md works as printed', () => {
  const page = readFileSync(new URL('../../../docs/guides/access.md', import.meta.url), 'utf8')
  const [, yaml = ''] = /```yaml\n(tokens:[\s\S]*?)```/.exec(page) ?? []
  const roles = readTokenFile(ruleFile(yaml, 'tokens.yaml')).map(({ name, role }) => `${name}: ${role}`)
  expect(roles).toEqual(['gateway: check', 'grafana: viewer'])
})

describe('an invalid token file is reported with its line, and without a token', () => {
  const SECRET = 'hunter2-hunter2-hunter2'
  test.each([
    [`tokens:\n  - { name: a, role: chek, token: ${SECRET} }`, ':2: tokens[0].role: use one of check'],
    [`- { name: a, role: check, tokn: ${SECRET} }`, ':1: tokens[0]: remove the unknown field; did you mean "token"?'],
    ['- { name: a, role: check, token: hunter2 }', ':1: tokens[0].token: give at least 16 characters'],
    ['- { name: a, role: check, token: hunter2hunter2hunter2 }', ':1: tokens[0].token: give at least 16 characters'],
    ['- { name: a, role: check, token: 1234567890123456789 }', ':1: tokens[0].token: put it in quotes'],
    ['tokens:\n  - { name: a, role: check, token: 1234567890123456789 }', ':2: tokens[0].token: put it in quotes'],
    [`- { name: 010, role: check, token: ${SECRET} }`, ':1: tokens[0].name: put it in quotes'],
    [`- { role: check, token: ${SECRET} }`, ':1: tokens[0].name: give 1 to 100 characters'],
    [
      `- { name: a, role: check, token: ${SECRET} }\n- { name: a, role: check, token: ${SECRET}2 }`,
      ':2: tokens[1].name: choose another name: names are unique (got a string of length 1)',
    ],
    [
      `- { name: a, role: check, token: ${SECRET} }\n- { name: b, role: admin, token: ${SECRET} }`,
      ':2: tokens[1].token: choose another token: an earlier entry has the same one',
    ],
    [`- { name: a, role: check, token: ${SECRET}, expires_at: soon }`, ':1: tokens[0].expires_at: give a time such as'],
    [`- { name: a, role: check, token: ${SECRET}, expires_at: 2030-02-40 }`, ':1: tokens[0].expires_at: give a time'],
    [`- name: a\n  role: check\n token: "${SECRET}"\n`, ':3: file: fix the YAML syntax'],
    [`- ${SECRET}`, ':1: tokens[0]: give an object with name, role and token'],
    [SECRET, ':1: tokens: give a list of at most 2000 tokens'],
    ['', ': tokens: give a list of at most 2000 tokens'],
  ])('%s', (content, expected) => {
    const path = ruleFile(content, 'tokens.yaml')
    const message = () => {
      try {
        readTokenFile(path)
        return 'no error'
      } catch (error) {
        return String(error)
      }
    }
    expect(message()).toContain(`${path}${expected}`)
    expect(message()).not.toContain('hunter2')
  })

  test('JSON', () => {
    const good = JSON.stringify([{ name: 'a', role: 'check', token: SECRET }])
    expect(readTokenFile(ruleFile(good, 'tokens.json'))).toMatchObject([{ tokenId: 'file:a', role: 'check' }])
    const path = ruleFile(`[{ "name": "a", "token": "${SECRET}", }]`, 'tokens.json')
    expect(() => readTokenFile(path)).toThrow(`${path}:1: file: fix the JSON syntax`)
  })
})

describe('a misplaced token in the file is not printed', () => {
  const CANARY = 'CANARYtoken0123456789abcdef'
  const GOOD = 'name: a, role: check, token: 0123456789abcdef-good'
  const YAML: readonly [place: string, content: string][] = [
    ['the role', `- { name: a, role: ${CANARY}, token: check }`],
    ['the end', `- { ${GOOD}, expires_at: ${CANARY} }`],
    ['a number', '- { name: a, role: 48151623421081, token: check }'],
    ['a name with a control character', `- { name: "${CANARY}\\t", role: check, token: 0123456789abcdef-good }`],
    ['a name that is doubled', `- { name: ${CANARY}, role: check, token: 0123456789abcdef-good }\n`.repeat(2)],
    ['the name of a field', `- { ${GOOD}, ${CANARY}: check }`],
    ['the name of a field, with dots', `- { ${GOOD}, "tokens[0].${CANARY}": check }`],
    ['an object as the role', `- { name: a, role: { ${CANARY}: ${CANARY} }, token: x }`],
    ['a list as the role', `- { name: a, role: [${CANARY}], token: [${CANARY}] }`],
    ['an object as the name of a field', `- { ${GOOD}, ? { ${CANARY}: 1 } : x }`],
    ['a list as the name of a field', `- { ${GOOD}, ? [${CANARY}] : x }`],
    ['an item', `- ${CANARY}`],
    ['an item of an item', `- [${CANARY}]`],
    ['the name of a list', `${CANARY}:\n  - { ${GOOD}, x: 1 }`],
    ['the list', `tokens: ${CANARY}`],
    ['an object in place of the list', `tokens: { ${CANARY}: ${CANARY} }`],
    ['a field that is doubled', `- { ${GOOD}, ${CANARY}: 1, ${CANARY}: 2 }`],
    ['a line that is not YAML', `- name: a\n token: ${CANARY}`],
    ['a quote that stays open', `- { name: a, token: "${CANARY}`],
    ['an alias', `- { name: a, token: *${CANARY} }`],
    ['an anchor', `- &${CANARY} { ${GOOD}, next: *${CANARY} }`],
    ['a tag', `- { name: a, token: !${CANARY} x }`],
    ['a directive', `%${CANARY} x\n---\n- { ${GOOD}, x: 1 }`],
    ['a second document', `- { ${GOOD} }\n---\n${CANARY}: 1`],
    ['a merge key', `- { ${GOOD}, <<: ${CANARY} }`],
  ]
  const JSONS: readonly [place: string, content: string][] = [
    ['the role in JSON', `[{"name":"a","role":"${CANARY}","token":"check"}]`],
    ['the name of a field in JSON', `[{"name":"a","role":"check","${CANARY}":"check"}]`],
    ['text that is not JSON', `[{"name":"a" "${CANARY}"}]`],
    ['text without quotes in JSON', `[{"name":${CANARY}}]`],
    ['a field that is doubled in JSON', `[{"${CANARY}":1,"${CANARY}":2}]`],
  ]
  const files = [
    ...YAML.map(([place, content]) => ({ place, content, file: 'tokens.yaml' })),
    ...JSONS.map(([place, content]) => ({ place, content, file: 'tokens.json' })),
  ]

  test.each(files)('$place', ({ content, file }) => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
    onTestFinished(() => warned.mockRestore())
    let thrown: unknown
    try {
      readTokenFile(ruleFile(content, file))
    } catch (error) {
      thrown = error
    }
    expect(thrown).toBeInstanceOf(LimiterError)
    const { message, stack, fieldErrors: faults } = thrown as LimiterError
    const printed = [message, stack, JSON.stringify(faults), JSON.stringify(warned.mock.calls)].join('\n')
    expect(printed).not.toMatch(/CANARY|48151623421081/i)
  })

  test('known words, which are not secrets, are shown', () => {
    const path = ruleFile('- { name: a, role: token, token: check }\n- { name: b, role: null }', 'tokens.yaml')
    expect(() => readTokenFile(path)).toThrow(
      /role: use one of .* \(got "token"\)\n[\s\S]*role: use one of .* \(got null\)/,
    )
  })

  test('a misplaced token is not logged when the file changes', async () => {
    const tokensFile = ruleFile(TOKENS, 'tokens.yaml')
    const { logged } = await serveFile(RULE, { tokensFile, checks: 'token' })
    writeFileSync(tokensFile, `- { name: c, token: check, role: ${CANARY} }\n- { ${CANARY}: check }\n`)
    await vi.waitFor(() => expect(logged.some(({ level }) => level === 'error')).toBe(true), PATIENTLY)
    expect(JSON.stringify(logged)).not.toContain(CANARY)
  })
})

describe('the command', () => {
  const everywhere = ['--host', '0.0.0.0', '--rules']

  test('warns in log and banner, with the fix, if every check would get 401', async () => {
    const { address, output } = await start([...everywhere, ruleFile(RULE)])
    const port = new URL(address).port
    expect((await clientOf(`http://127.0.0.1:${port}`).post(CHECK, {})).status).toBe(401)
    const fix = expect.stringMatching(/--tokens-file, or give --checks open/)
    expect(output().stdout).toMatch(/^Warning: every check gets 401/m)
    expect(output().stdout.replaceAll(/\s+/g, ' ')).toEqual(fix)
    const warning = { level: 'warn', event: 'check_token_missing', fix }
    await vi.waitFor(() => {
      const [first = ''] = output().stderr.split('\n')
      expect(JSON.parse(first)).toMatchObject(warning)
    }, PATIENTLY)
  })

  test.each([
    ['open checks', ['--checks', 'open'], false],
    ['an admin token', ['--admin-token', ADMIN_TOKEN], false],
    ['a token that may check', ['--tokens-file', TOKENS], false],
    ['tokens of which none may check', ['--tokens-file', TOKENS.replace('role: check', 'role: viewer')], true],
    [
      'a token that has expired',
      ['--tokens-file', `- {name: a, role: check, token: ${GATEWAY}, expires_at: 2001-01-01}`],
      true,
    ],
  ])('with %s', async (_name, [flag = '', value = ''], warns) => {
    const given = flag === '--tokens-file' ? ruleFile(value, 'tokens.yaml') : value
    const { output } = await start([...everywhere, ruleFile(RULE), flag, given])
    expect(output().stdout.includes('every check gets 401')).toBe(warns)
  })

  test('does not start with an invalid token file, or with one that has no effect', () => {
    const tokensFile = ruleFile(TOKENS.replace('role: check', 'role: chek'), 'tokens.yaml')
    const { code, stderr } = run(['--rules', ruleFile(RULE), '--tokens-file', tokensFile])
    const fault = 'tokens[0].role: use one of check, viewer, editor, approver, admin (got a string of length 4)'
    expect([code, stderr]).toEqual([2, `sluice: invalid settings\n  ${tokensFile}:3: ${fault}\n`])
    expect(run(['--tokens-file', tokensFile]).stderr).toContain('--tokens-file: remove it, or give --rules')
  })
})
