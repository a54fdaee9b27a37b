// Nothing that a client, a rule or a server sends can control the terminal of an operator: every command, against a
// node whose every text is hostile.

import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text as readText } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { COMMANDS } from '../../src/cli/commands.ts'
import { createLog } from '../../src/log.ts'
import { ADMIN_TOKEN, serveFile } from '../service.ts'
import { sluice } from './terminal.ts'

const HOSTILE = '\u009b31m\u202e\u2066\u2028\u0007\r\u001b[2J\u001b]0;title\u0007'
const UNSAFE = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u
const COLOURS = new RegExp(`${String.fromCharCode(27)}\\[(?:[012]|3[123])m`, 'g')
/** Run until they are stopped. */
const ENDLESS: readonly string[] = ['serve', 'gateway', 'events consume', 'events tail', 'fleet']
const RULES = '- { rule_id: demo, limit: 1, window: 1d, scope: per_user, name: Demo, description: for tests }\n'

/** Every text of an answer, with the hostile characters behind it. */
function poisoned(value: unknown): unknown {
  if (typeof value === 'string') return value + HOSTILE
  if (Array.isArray(value)) return value.map(poisoned)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, poisoned(inner)]))
}

/** Forwards requests to a node, and poisons its answers. */
async function hostileNode(): Promise<string> {
  const node = await serveFile(RULES)
  await node.check({ client_id: 'ann', endpoint: '/demo' })
  await node.check({ client_id: 'ann', endpoint: '/demo' })
  const proxy = createServer(async (request, response) => {
    const { authorization = '', 'content-type': type = 'application/json' } = request.headers
    const body = await readText(request)
    const init = { method: request.method ?? 'GET', headers: { authorization, 'content-type': type } }
    const answer = await fetch(node.address + (request.url ?? '/'), body === '' ? init : { ...init, body })
    const isJson = answer.headers.get('content-type')?.includes('json') === true
    const text = await answer.text()
    response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? 'text/plain' })
    response.end(isJson ? JSON.stringify(poisoned(JSON.parse(text))) : `${text}${HOSTILE}`)
  }).listen(0, '127.0.0.1')
  onTestFinished(() => void proxy.close())
  await new Promise((listening) => proxy.once('listening', listening))
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
}

/** Arguments of an example that needs no shell. */
function argumentsOf(line: string): string[] | undefined {
  if (!line.startsWith('sluice ') || /[|<>$]/.test(line)) return undefined
  return [...line.slice('sluice '.length).matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    ([, a, b, c]) => a ?? b ?? c ?? '',
  )
}

const runs = COMMANDS.filter(({ name }) => !ENDLESS.includes(name)).flatMap(({ name, examples, flags }) => {
  const lines = examples.map(({ line }) => argumentsOf(line)).filter((args) => args !== undefined)
  const plain = lines.length > 0 ? lines : [name.split(' ')]
  const json = flags.some((flag) => flag.name === 'json') ? plain.map((args) => [...args, '--json']) : []
  return [...plain, ...json, [...name.split(' '), `--unknown${HOSTILE}`], [...name.split(' '), HOSTILE]]
})

test('no command prints a character that controls a terminal', async () => {
  const url = await hostileNode()
  const env = { SLUICE_URL: url, SLUICE_TOKEN: ADMIN_TOKEN }
  let printed = 0
  for (const args of runs) {
    for (const colors of [false, true]) {
      const { out, told } = await sluice(args, { env, colors, answer: false, input: RULES }).catch(() => {
        return { out: '', told: '' } // an answer with other words than those of the API is a bug of the server
      })
      const text = colors ? (out + told).replace(COLOURS, '') : out + told
      expect(UNSAFE.exec(text)?.index, `${args.join(' ')}: ${JSON.stringify(text).slice(0, 500)}`).toBeUndefined()
      if (text.includes('\\u202e')) printed += 1
    }
  }
  expect(printed, 'hostile texts were printed, escaped').toBeGreaterThan(runs.length / 4)
})

test('log lines are JSON of the same values, without characters that control a terminal', () => {
  const lines: string[] = []
  const log = createLog('info', { write: (line: string) => lines.push(line) })
  log.event('bucket_reset', { rule_id: HOSTILE, by: `a${HOSTILE}` })
  expect(lines).toHaveLength(1)
  expect(lines[0]).not.toMatch(UNSAFE)
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({ rule_id: HOSTILE, by: `a${HOSTILE}` })
})
