import { describe, expect, test } from 'vitest'
import { ADMIN_TOKEN, ruleFile, serveFile } from '../service.ts'
import { sluice } from './terminal.ts'

const RULES = `
- { rule_id: two, name: Two, limit: 2, window: 1d, scope: per_user, algorithm: fixed_window, endpoint_pattern: /two }
- { rule_id: trial, limit: 1, window: 1d, endpoint_pattern: /two, method: POST, mode: shadow }
- { rule_id: banned, limit: 0, window: 1d, endpoint_pattern: /banned }
- { rule_id: mobile, limit: 5, window: 1d, when: { client: mobile }, endpoint_pattern: /two }
`
const TWO = ['--path', '/two', '--user', 'alice']

/** The same commands, for a node and for a file. */
const places = [
  ['a node', async () => ['--url', (await serveFile(RULES)).address, '--token', ADMIN_TOKEN]],
  ['a file', async () => ['--rules', ruleFile(RULES)]],
] as const

describe.each(places)('check, asking %s', (_name, place) => {
  test('counts down, and exits with 3 once it is refused', async () => {
    const where = await place()
    expect(await sluice(['check', ...TWO, '--times', '2', ...where])).toEqual({
      code: 0,
      out: [
        ...['allowed: 1 of 2 left', '  two   1 of 2 left, window 86400 s   per_user'],
        ...['allowed: 0 of 2 left', '  two   0 of 2 left, window 86400 s   per_user', ''],
      ].join('\n'),
      told: '',
    })
    const third = await sluice(['check', ...TWO, '--times', '3', ...where])
    expect(third.code).toBe(3)
    expect(third.out).toMatch(/^refused by two: try again in \d+ s$/m)
  })

  test('--dry-run consumes nothing', async () => {
    const where = await place()
    const { code, out } = await sluice(['check', ...TWO, '--dry-run', '--times', '5', '--json', ...where])
    const remaining = out
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { remaining: number }).remaining)
    expect({ code, distinct: new Set(remaining).size, asked: remaining.length }).toEqual({
      code: 0,
      distinct: 1,
      asked: 5,
    })
  })

  test('--json is the answer of the API', async () => {
    const where = await place()
    const { out } = await sluice(['check', ...TWO, '--cost', '2', '--json', ...where])
    expect(JSON.parse(out)).toMatchObject({
      allowed: true,
      remaining: 0,
      limit: 2,
      rules: [{ rule_id: 'two', cost: 2 }],
    })
  })

  test('every fact reaches the rules', async () => {
    const where = await place()
    const facts = ['--method', 'POST', '--attribute', 'client=mobile', '--ip', '192.0.2.1', '--plan', 'free']
    const { out } = await sluice(['check', ...TWO, ...facts, '--tenant', 'acme', '--api-key', 'k', '--json', ...where])
    const { rules } = JSON.parse(out) as { rules: { rule_id: string }[] }
    expect(rules.map(({ rule_id: id }) => id).sort()).toEqual(['mobile', 'trial', 'two'])
  })

  test('refusals without a retry time, and requests without a rule', async () => {
    const where = await place()
    expect((await sluice(['check', '--path', '/banned', ...where])).out).toMatch(
      /^refused by banned: waiting does not help$/m,
    )
    expect(await sluice(['check', '--path', '/free', ...where])).toMatchObject({
      code: 0,
      out: 'allowed: no rule applies\n',
    })
  })

  test('an invalid method or address is reported with exit code 2', async () => {
    const where = await place()
    const { code, told } = await sluice(['check', '--method', 'GTE', '--ip', 'here', ...where])
    expect(code).toBe(2)
    expect(told).toMatch(/method: unknown method; did you mean "GET"\?/)
    expect(told).toMatch(/ip_address: give an IPv4 or IPv6 address/)
  })
})

describe.each(places)('explain, asking %s', (_name, place) => {
  test('shows which rules apply and why others do not, and consumes nothing', async () => {
    const where = await place()
    const once = await sluice(['explain', ...TWO, ...where])
    expect(once).toMatchObject({ code: 0, told: '' })
    expect(once.out).toMatch(/^would be allowed: 2 of 2 left$/m)
    expect(once.out).toMatch(/^ {2}two +2 of 2 left, window 86400 s +per_user$/m)
    expect(once.out.match(/^ {2}two /gm), 'each rule is printed once').toHaveLength(1)
    expect(once.out).toMatch(/^ {2}banned +path +\/banned does not match \/two$/m)
    expect(once.out).toMatch(/^ {2}trial +method +it is for POST, and the request has no method$/m)
    expect((await sluice(['explain', ...TWO, ...where])).out).toBe(once.out)
  })

  test('--json is the answer of the API', async () => {
    const where = await place()
    const { out } = await sluice(['explain', '--path', '/banned', '--json', ...where])
    expect(JSON.parse(out)).toMatchObject({
      answer: { allowed: false, rule_id: 'banned' },
      rules: [{ rule_id: 'banned' }, {}, {}, {}],
      left_out: 0,
    })
  })
})

test('without the right token: exit code 4 and the fix', async () => {
  const { address } = await serveFile(RULES)
  const anonymous = await sluice(['explain', '--path', '/two'], { env: { SLUICE_URL: address } })
  expect(anonymous.code).toBe(4)
  expect(anonymous.told).toMatch(
    /returned 401 UNAUTHORIZED: Send a token with the role viewer.*\n {2}Pass a token with --token/,
  )
  const wrong = await sluice(['check'], { env: { SLUICE_URL: address, SLUICE_TOKEN: 'wrong' } })
  expect(wrong.code).toBe(4)
})

test('an invalid rule file is reported with its line and exit code 2', async () => {
  const path = ruleFile('- { rule_id: a,\n limit: -1, window: 1m }')
  const { code, told } = await sluice(['check', '--rules', path])
  expect(code).toBe(2)
  expect(told).toContain(`sluice check: invalid rules\n${path}:2: rules[0].limit: give a whole number`)
})

test.each([
  [['--path', 'two'], '--path: give a path that starts with "/" (got "two")'],
  [['--cost', '0'], '--cost: give a whole number from 1 to 1000000000 (got "0")'],
  [['--attribute', '=x'], '--attribute: use the form name=value (got "=x")'],
  [['--times', '1001'], '--times: give a whole number from 1 to 1000 (got "1001")'],
  [['--json=yes'], '--json: takes no value'],
  [['--user'], '--user: give a value (got "")'],
  [['--token', 'a b'], '--token: give a token without spaces'],
])('%j: %s', async (args, fault) => {
  const { code, told } = await sluice(['check', ...args])
  expect({ code, told }).toEqual({ code: 2, told: `sluice check: invalid argument\n  ${fault}\n` })
})
