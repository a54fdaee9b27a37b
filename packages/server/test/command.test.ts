import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { text as readText } from 'node:stream/consumers'
import { startRedis } from 'sluice/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { COMMANDS } from '../src/cli/commands.ts'
import { programHelp } from '../src/cli/help.ts'
import { VERSION } from '../src/package-facts.ts'
import { emptyDataDir, temporaryFolder } from './databases.ts'
import { preloading, type Running, run, start } from './process.ts'
import { ADMIN_TOKEN, CHECK, clientOf, RULES, ruleFile } from './service.ts'

const ONE = '- { rule_id: one, limit: 1, window: 1d, scope: per_user }\n'

describe('the command', () => {
  test('--help and --version print and exit with 0', () => {
    expect(run(['--help'])).toEqual({ code: 0, stdout: programHelp(COMMANDS), stderr: '' })
    expect(run(['-h', '--port', 'wrong']).code, 'whatever else is wrong').toBe(0)
    expect(run(['--version'])).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: '' })
  })

  test('usage errors are reported on stderr, all together, with exit code 2', () => {
    const { code, stdout, stderr } = run(['--prot', '--layer=x'], { SLUICE_LOG_LEVEL: 'loud' })
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr.split('\n')).toEqual([
      'sluice: invalid settings',
      '  --prot: unknown flag; did you mean --port?',
      '  --layer: use edge or service (got "x")',
      '  SLUICE_LOG_LEVEL: use one of silent, fatal, error, warn, info, debug, trace (got "loud")',
      '',
    ])
  })

  test('an invalid rule file is reported with its line and exit code 2', () => {
    const path = ruleFile('rules:\n  - rule_id: a\n    limit: -1\n    window_seconds: 0\n')
    const { code, stderr } = run(['--rules', path])
    expect(code).toBe(2)
    expect(stderr).toContain(`${path}:3: rules[0].limit: give a whole number`)
    expect(stderr).toContain(`${path}:4: rules[0].window_seconds: give seconds`)
  })

  test('a file that is no Envoy configuration is one error, under a heading of its own, with exit code 2', () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'README.md'), '# Limits\n\nAsk the owner.\n')
    const { code, stderr } = run(['--envoy-config', folder, '--rules', ruleFile(ONE)])
    const [heading, ...errors] = stderr.trimEnd().split('\n')
    expect({ code, heading }).toEqual({ code: 2, heading: 'sluice: invalid Envoy configuration' })
    expect(errors).toEqual([expect.stringMatching(/README\.md: file: not a configuration: /)])
  })

  test('a start that is interrupted while it creates the database says so, and leaves no folder', () => {
    const dataDir = temporaryFolder()
    const interrupted =
      "import { mkdirSync } from 'node:fs'; const [, program, folder] = process.argv; " +
      "if (program?.endsWith('create-database.mjs')) { mkdirSync(folder); process.kill(process.pid, 'SIGTERM') }"
    const { code, stderr } = run(['--port', '0'], { ...preloading(interrupted), SLUICE_DATA_DIR: dataDir })
    expect({ code, stderr: stderr.trimEnd() }).toEqual({
      ...{ code: 1, stderr: expect.stringContaining('sluice: the start was interrupted by SIGTERM while it created') },
    })
    expect(readdirSync(dataDir).filter((name) => name.includes('.new-'))).toEqual([])
  })

  test('a long rule file is parsed in a thread, and its errors still have line numbers', async () => {
    const rules = Array.from({ length: 4000 }, (_, index) => `- { rule_id: r${index}, limit: 5, window: 1d }\n`)
    const { output } = await start(['--rules', ruleFile(rules.join(''))])
    expect(output().stdout).toContain('… and 3980 more')
    const path = ruleFile(`${rules.join('')}- { rule_id: last, limit: -1, window: 1d }\n`)
    const { code, stderr } = run(['--rules', path])
    expect(code).toBe(2)
    expect(stderr).toContain(`${path}:4001: rules[4000].limit: give a whole number`)
  })

  test('a port in use is reported with the fix and exit code 1', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    await once(taken, 'listening')
    const { port } = taken.address() as { port: number }
    const { code, stderr } = run(['--port', String(port), '--rules', ruleFile(ONE)])
    taken.close()
    expect(code).toBe(1)
    expect(stderr).toContain('choose another port with --port')
  })
})

test('a command prints data to stdout and messages to stderr, and survives a reader that exits early', () => {
  const { code, stdout, stderr } = run(['rules', 'lint', 'examples/bad.yaml'])
  expect(code).toBe(2)
  expect(stdout.split('\n').length).toBeGreaterThan(20)
  expect(stdout).not.toContain('mistakes')
  expect(stderr).toMatch(/^examples\/bad\.yaml: 22 rules, \d+ errors, 5 warnings\n$/)
  const cut = execFileSync('sh', ['-c', 'node packages/server/bin/sluice.js --help 2>&1 | head -1'], {
    encoding: 'utf8',
  })
  expect(cut).toMatch(/^sluice \S+: a distributed rate limiter/)
})

test('rules are read from standard input to its end, even from a slow writer', () => {
  const rules = Array.from({ length: 3000 }, (_, index) => `- { rule_id: r${index}, limit: 5, window: 1d }`).join('\n')
  const path = ruleFile(`${rules}\n- { rule_id: last, limit: -1, window: 1d }\n`)
  const sluice = 'node packages/server/bin/sluice.js'
  const shell = `(head -c 1000 ${path}; sleep 0.3; tail -c +1001 ${path}) | ${sluice} rules lint - 2>&1; echo done`
  const out = execFileSync('sh', ['-c', shell], { encoding: 'utf8' })
  expect(out).toContain('stdin:3001: error: rules[3000].limit: give a whole number')
  expect(out).toContain('stdin: 3001 rules, 1 error, 0 warnings')
})

describe('the banner', () => {
  test('shows address, rules and a curl that counts down to a refusal', async () => {
    const { output } = await start([], { SLUICE_DATA_DIR: await emptyDataDir() })
    const { stdout } = output()
    expect(stdout).toMatch(/^Sluice \S+ listens on http:\/\/127\.0\.0\.1:\d+\n/)
    expect(stdout).toMatch(/comments_per_min +100\/min +per_user +POST \/api\/v1\/comments/)
    expect(stdout).toMatch(/search_tiers +10\/s, 200\/min, 5000\/h, 50000\/d +per_api_key/)
    const curl = /^ +(curl .+)$/m.exec(stdout)?.[1] ?? ''
    const answers = Array.from({ length: 7 }, () => JSON.parse(execFileSync('sh', ['-c', curl], { encoding: 'utf8' })))
    expect(answers.map(({ allowed, remaining }) => `${allowed} ${remaining}`)).toEqual([
      ...['true 4', 'true 3', 'true 2', 'true 1', 'true 0'],
      ...['false 0', 'false 0'],
    ])
    expect(answers[6].retry_after).toBeGreaterThanOrEqual(1)
    await vi.waitFor(() => {
      expect(JSON.parse(output().stderr), 'the log is not in the banner').toMatchObject({
        level: 'info',
        msg: 'listening',
      })
    })
  })

  test('the curl command uses a reachable address', async () => {
    const { output } = await start(['--rules', ruleFile(ONE), '--host', '0.0.0.0', '--checks', 'open'])
    const curl = /^ +(curl .+)$/m.exec(output().stdout)?.[1] ?? ''
    expect(curl).toMatch(/ http:\/\/127\.0\.0\.1:\d+\//)
    expect(JSON.parse(execFileSync('sh', ['-c', curl], { encoding: 'utf8' }))).toMatchObject({ allowed: true })
  })

  test('the curl command matches rules of any kind', async () => {
    const rules = `
      - { rule_id: wide, limit: 1000, window: 1d }
      - { rule_id: narrow, limit: 2, window: 1d, scope: [tenant, ip], endpoint_pattern: '/o/:id/x/**', plan: "it's" }
      - { rule_id: trial, limit: 1, window: 1d, mode: shadow }`
    const { output } = await start(['--rules', ruleFile(rules)])
    const curl = /^ +(curl .+)$/m.exec(output().stdout)?.[1] ?? ''
    expect(curl).toContain('"endpoint":"/o/42/x/example"')
    const ask = () => JSON.parse(execFileSync('sh', ['-c', curl], { encoding: 'utf8' })) as { remaining: number }
    expect([ask().remaining, ask().remaining, ask()]).toMatchObject([1, 0, { allowed: false, rule_id: 'narrow' }])
  })
})

test('flags, environment and file reach the running service; unknown variables are warned about', async () => {
  const path = ruleFile(ONE)
  const envoy = ruleFile('domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 0 } }]\n')
  const { address, output } = await start(['--log-level', 'debug', '--admin-token', ADMIN_TOKEN], {
    ...{ SLUICE_RULES: path, SLUICE_RULEZ: 'x', SLUICE_API_PORT: '1', SLUICE_ENVOY_CONFIG: envoy },
    ...{ SHADOW_MODE: 'true', LOCAL_CACHE_SIZE_IN_BYTES: '1' },
  })
  const { check, get, post } = clientOf(address)
  const forEnvoy = { domain: 'd', descriptors: [{ entries: [{ key: 'k', value: 'v' }] }] }
  expect(await post('/json', forEnvoy)).toMatchObject({ status: 200, body: { statuses: [{ code: 'OVER_LIMIT' }] } })
  expect(await check({ client_id: 'alice' })).toMatchObject({ allowed: true, limit: 1 })
  expect(await check({ client_id: 'alice' })).toMatchObject({ allowed: false })
  writeFileSync(path, ONE.replace('limit: 1', 'limit: 3'))
  await vi.waitFor(async () => expect((await get(RULES, ADMIN_TOKEN)).body.version).toBe(2), { timeout: 10_000 })
  await vi.waitFor(() => {
    const lines = output()
      .stderr.trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines.find(({ event }) => event === 'envoy_variables_adopted')).toMatchObject({
      settings: ['SHADOW_MODE: --envoy-shadow-mode on'],
    })
    expect(lines.find(({ event }) => event === 'envoy_domains')).toMatchObject({ configured: ['d'], rules: [] })
    expect(lines.map(({ event, reason = '' }) => `${event} ${reason}`.trim())).toEqual([
      'setting_unknown SLUICE_RULEZ is not a setting; did you mean "SLUICE_RULES"?',
      'setting_unknown SLUICE_API_PORT has no effect: it is a setting of sluice gateway only',
      'setting_unknown LOCAL_CACHE_SIZE_IN_BYTES of envoyproxy/ratelimit is not read; ' +
        'not supported: refused requests reach Redis too',
      'envoy_variables_adopted',
      'envoy_config_applied',
      'envoy_domains',
      'envoy_shadow_mode',
      'listening',
      'check_refused',
      'rules_applied',
    ])
  })
  expect(output().stderr).not.toContain('alice')
})

/** Sends the head of a check and the first half of its body; `finish` sends the rest and reads the answer. */
async function halfACheck({ address }: Running): Promise<{ finish(): Promise<string> }> {
  const body = JSON.stringify({ client_id: 'slow' })
  const socket = connect(Number(new URL(address).port), '127.0.0.1')
  const head = ['POST', CHECK, 'HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n'].join(
    ' ',
  )
  socket.write(`${head}content-length: ${body.length}\r\n\r\n${body.slice(0, 5)}`)
  await once(socket, 'connect')
  return {
    finish: () => {
      socket.write(body.slice(5))
      return readText(socket)
    },
  }
}

describe('SIGTERM', () => {
  test('/readyz returns 503 first, then requests in flight are answered, then it exits with 0', async () => {
    const running = await start(['--rules', ruleFile(ONE), '--drain-ms', '1500'])
    const { get, check } = clientOf(running.address)
    const pending = await halfACheck(running)
    expect(await get('/readyz')).toMatchObject({ status: 200 })
    running.signal('SIGTERM')
    await vi.waitFor(async () => expect((await get('/readyz')).status).toBe(503), { timeout: 1400, interval: 10 })
    expect(await check({ client_id: 'a' }), 'draining, but still serving').toMatchObject({ allowed: true })
    await vi.waitFor(async () => expect(await reachable(running)).toBe(false), { timeout: 10_000, interval: 20 })
    expect(await pending.finish()).toMatch(/^HTTP\/1\.1 200 OK[\s\S]*"allowed":true/)
    const { code, stderr } = await running.ended()
    expect(code).toBe(0)
    expect(
      stderr
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).event),
    ).toEqual(['listening', 'stopping', 'stopped'])
  })

  test('a frozen Redis does not delay it by more than seconds', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const rules = ruleFile('- { rule_id: r, limit: 10, window: 1d, scope: per_user }')
    const running = await start(['--rules', rules, '--redis', redis.url, '--drain-ms', '0', '--log-level', 'debug'])
    const { check } = clientOf(running.address)
    await vi.waitFor(async () =>
      expect(await check({ client_id: 'a', detail: true })).toMatchObject({ source: 'store' }),
    )
    process.kill(redis.pid, 'SIGSTOP')
    try {
      for (const client_id of ['b', 'c']) await check({ client_id, request_id: `request-${client_id}` })
      running.signal('SIGTERM')
      expect((await running.ended()).code).toBe(0) // without the fix it waits until Redis continues
    } finally {
      process.kill(redis.pid, 'SIGCONT')
    }
  })

  test('what does not end in time is left, and the log says so', async () => {
    const endless = "import { Server } from 'node:net'; Server.prototype.close = function () { return this }"
    const running = await start(['--rules', ruleFile(ONE), '--drain-ms', '0'], preloading(endless))
    running.signal('SIGTERM')
    const { code, stderr } = await running.ended()
    expect(code).toBe(1)
    expect(JSON.parse(stderr.trim().split('\n').at(-1) ?? '')).toMatchObject({
      ...{ level: 'error', event: 'stop_forced', msg: 'stopping took too long; exiting with work left' },
      left: expect.objectContaining({ TCPServerWrap: 1 }),
    })
  })

  test('idle keep-alive connections do not delay it', async () => {
    const running = await start(['--rules', ruleFile(ONE), '--drain-ms', '0'])
    const socket = connect(Number(new URL(running.address).port), '127.0.0.1')
    socket.write('GET /livez HTTP/1.1\r\nhost: x\r\n\r\n')
    await once(socket, 'data')
    running.signal('SIGTERM')
    expect((await running.ended()).code).toBe(0)
    socket.destroy()
  })

  test('SIGINT stops without draining; a second signal ends it immediately', async () => {
    const patient = await start(['--rules', ruleFile(ONE), '--drain-ms', '600000'])
    patient.signal('SIGINT')
    expect((await patient.ended()).code).toBe(0)
    const draining = await start(['--rules', ruleFile(ONE), '--drain-ms', '600000'])
    draining.signal('SIGTERM')
    await vi.waitFor(() => expect(draining.output().stderr).toContain('"stopping"'))
    draining.signal('SIGTERM')
    expect((await draining.ended()).code).toBe(143)
  })
})

async function reachable({ address }: Running): Promise<boolean> {
  const socket = connect(Number(new URL(address).port), '127.0.0.1')
  const connected = await Promise.race([
    once(socket, 'connect').then(() => true),
    once(socket, 'close').then(() => false),
  ]).catch(() => false)
  socket.destroy()
  return connected
}
