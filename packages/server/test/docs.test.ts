import { execFile, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { PROBLEMS } from '../src/problems/problem.ts'
import { ADMIN_TOKEN, serveEmbedded } from './service.ts'

const page = readFileSync(new URL('../../../docs/reference/http-api.md', import.meta.url), 'utf8')
const shell = promisify(execFile)
const hasCurl = spawnSync('curl', ['--version']).status === 0

/** The commands of the page in their order, each with the answer that is printed below it. */
const EXAMPLES = [...page.matchAll(/```sh\n([\s\S]*?)```\n(?:\n```json\n([\s\S]*?)```)?/g)].map(
  ([, command = '', answer]) => ({
    command,
    answer: answer === undefined ? undefined : (JSON.parse(answer) as unknown),
  }),
)

/** Too long to be printed on the page. */
const UNPRINTED =
  /sluice_checks_total|^rules:|^204$|"changes":\[\{|"left_out":0|"(decisions|violations|series)":\[|^: connected/

/** Numbers and texts that differ from run to run or from place to place are compared by type only. */
function shapeOf(value: unknown, name = ''): unknown {
  if (Array.isArray(value)) return value.map((item) => shapeOf(item))
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, shapeOf(inner, key)]))
  }
  const resets = ['reset_at', 'full_at', 'reset_after_ms', 'full_after_ms', 'X-RateLimit-Reset', 'RateLimit']
  const times = [...resets, 'created_at', 'updated_at']
  const audit = ['seq', 'at', 'hash', 'next']
  const ids = ['override_id', 'bypass_id', 'signal_id', 'proposal_id', 'request_id', 'token', 'token_id', 'node']
  const varies = [...times, ...audit, ...ids, 'since', 'expires_at'].includes(name)
  return varies ? typeof value : value
}

test.skipIf(!hasCurl)('every command of http-api.md is answered as the page says', { timeout: 120_000 }, async () => {
  const { address } = await serveEmbedded({ adminToken: ADMIN_TOKEN })
  const env = { ...process.env, TOKEN: ADMIN_TOKEN }
  expect(EXAMPLES.length).toBeGreaterThan(10)
  for (const { command, answer } of EXAMPLES) {
    const { stdout } = await shell('sh', ['-c', command.replaceAll('http://127.0.0.1:8080', address)], { env })
    if (answer === undefined) expect(stdout, command).toMatch(UNPRINTED)
    else expect(shapeOf(JSON.parse(stdout)), command).toEqual(shapeOf(answer))
  }
})

test('http-api.md lists every problem code with its status', () => {
  const listed = [...page.matchAll(/^\| `([A-Z_]+)` \| (\d{3}) \|/gm)].map(([, code, status]) => [code, Number(status)])
  expect(Object.fromEntries(listed)).toEqual(PROBLEMS)
})
