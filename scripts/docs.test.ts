// The documentation is correct: its commands, run against a real service, return the printed responses; its snippets
// run and print what their comments say; and the files and npm commands that it names exist.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type RedisProcess, startRedis } from 'sluice/testing'
import { transformWithOxc } from 'vite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fillWithEmptyDatabase } from '../packages/server/test/databases.ts'
import { freePort } from '../packages/sluice/src/testing/free-port.ts'
import { type Block, blocksOf, GUIDES, isScript } from './snippets.ts'

const START_TIMEOUT_MS = 300_000
const SNIPPET_TIMEOUT_MS = 30_000
const DOCUMENTED_ADDRESS = 'http://127.0.0.1:8080'
const DOCUMENTED_REDIS = 'redis://127.0.0.1:6379'
const DOCUMENTED_GRPC = 'http://127.0.0.1:8081'

const LINES_MAX: Readonly<Record<string, number>> = {
  'README.md': 150,
  'ARCHITECTURE.md': 200,
  'packages/sluice/README.md': 60,
  'packages/server/README.md': 60,
}
const DECISIONS = readdirSync('docs/decisions').map((name) => `docs/decisions/${name}`)
const REFERENCE = readdirSync('docs/reference').map((name) => `docs/reference/${name}`)
const PAGES = [...Object.keys(LINES_MAX), ...GUIDES, 'docs/runbook.md']

const blocks = PAGES.flatMap(blocksOf)
/** Need tokens and an order: guide.test.ts in packages/server/test/exceptions and in …/rollouts runs them. */
const TESTED_ELSEWHERE = ['docs/guides/exceptions.md', 'docs/guides/rollouts.md']
const commands = blocks.filter(
  ({ page, language, text }) => !TESTED_ELSEWHERE.includes(page) && language === 'sh' && text.includes('curl '),
)
const snippets = [...blocks, ...REFERENCE.flatMap(blocksOf)].filter(isScript)
const hasCurl = spawnSync('curl', ['--version']).status === 0

let service: ChildProcess
let banner: string
let dataDir: string
let redis: RedisProcess
let grpcPort: number

beforeAll(async () => {
  redis = await startRedis()
  dataDir = mkdtempSync(join(tmpdir(), 'sluice-docs-'))
  await fillWithEmptyDatabase(dataDir)
  grpcPort = await freePort()
  const ports = ['--port', '0', '--grpc-port', String(grpcPort)]
  const args = ['packages/server/bin/sluice.js', ...ports, '--log-level', 'fatal', '--data-dir', dataDir]
  service = spawn(process.execPath, args, {
    env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('SLUICE_'))),
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  banner = await bannerOf(service)
}, START_TIMEOUT_MS)

afterAll(async () => {
  await redis?.stop()
  if (service !== undefined && service.exitCode === null) {
    const exit = once(service, 'exit')
    service.kill('SIGKILL')
    await exit
  }
  rmSync(dataDir, { recursive: true, force: true })
})

describe.skipIf(!hasCurl)('commands', () => {
  it.for(commands)('$page:$line returns the printed response', (command) => {
    const answers = answersTo(command)
    expect(answers.length, 'needs a JSON block below it, with one response per line').toBeGreaterThan(0)
    for (const answer of answers) expect(shapeOf(shell(command.text))).toEqual(shapeOf(answer))
  })

  it('the first command of the README is the one that the service prints', () => {
    const printed = /^ +(curl .+)$/m.exec(banner)?.[1] ?? ''
    expect(commands[0]?.text.trim()).toBe(printed.replace(addressIn(banner), DOCUMENTED_ADDRESS))
  })
})

describe('snippets', () => {
  it.for(snippets)(
    '$page:$line runs, exits, and prints what its comments say',
    { timeout: 60_000 },
    async (snippet) => {
      // Snippets of packages/server run in the root, where examples/rules.yaml is.
      const cwd = snippet.page.startsWith('packages/server/') ? '.' : 'packages/sluice'
      const { code } = await transformWithOxc(snippet.text, 'snippet.ts') // removes the types
      const source = snippet.language === 'ts' ? code : snippet.text
      const input = withProbe(
        source.replaceAll(DOCUMENTED_REDIS, redis.url).replaceAll(DOCUMENTED_GRPC, `http://127.0.0.1:${grpcPort}`),
      )
      const options = { cwd, input, encoding: 'utf8', timeout: SNIPPET_TIMEOUT_MS } as const
      const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module'], options)
      expect(status, stderr || 'it did not exit').toBe(0)
      expect(stdout).toBe(
        [...commentsIn(snippet.text), ...(input.endsWith(PROBE) ? commentsIn(PROBE) : []), ''].join('\n'),
      )
    },
  )

  it('there are snippets and commands to test', () => {
    expect(snippets.length).toBeGreaterThan(5)
    expect(commands.length).toBeGreaterThan(1)
  })
})

describe('references in pages', () => {
  it.each([...PAGES, ...DECISIONS, 'CHANGELOG.md', 'docs/reference/guarantees.md'])('%s: every file exists', (page) => {
    const named = [
      ...read(page).matchAll(/`((?:src|test|server|packages|scripts|bench|fleet|docs|examples)\/[\w./-]*)`/g),
    ]
    expect(named.map(([, path = '']) => resolvePath(path)).filter((path) => !existsSync(path))).toEqual([])
  })

  it.each(PAGES)('%s: every npm command exists', (page) => {
    const scripts = Object.keys((JSON.parse(read('package.json')) as { scripts: object }).scripts)
    const named = [...read(page).matchAll(/\bnpm (?:run )?(start|test|(?<=npm run )[\w-]+)/g)].map(([, name]) => name)
    expect(named.filter((name) => name !== undefined && !scripts.includes(name))).toEqual([])
  })

  it.each(PAGES)('%s: every metric exists', (page) => {
    const known = new Set(
      [...read('docs/reference/metrics.md').matchAll(/^\| `(sluice_\w+)/gm)].map(([, name]) => name),
    )
    const named = [...read(page).matchAll(/\bsluice_[a-z_]*[a-z]\b/g)].map(([name]) =>
      name.replace(/_(bucket|count|sum)$/, ''),
    )
    // Tables of ClickHouse have names of the same form.
    const tables = new Set(read('packages/server/src/events/clickhouse/schema.ts').match(/\bsluice_[a-z_]*[a-z]\b/g))
    const isTable = (name: string) => tables.has(name.replace(/_minute$/, ''))
    expect(named.filter((name) => !known.has(name) && !isTable(name))).toEqual([])
  })

  it('docs/runbook.md: every log line exists in the service', () => {
    const paths = readdirSync('packages/server/src', { recursive: true, encoding: 'utf8' })
    const sources = paths.filter((path) => path.endsWith('.ts')).map((path) => read(join('packages/server/src', path)))
    const rows = [...read('docs/runbook.md').matchAll(/^\| log \|.*$/gm)].map(([row]) => row)
    const lines = rows.flatMap((row) => [...row.matchAll(/`([^`]+)`/g)].map(([, line = '']) => line))
    expect(lines.length).toBeGreaterThan(5)
    expect(lines.filter((line) => !sources.some((source) => source.includes(line)))).toEqual([])
  })

  it.each(Object.entries(LINES_MAX))('%s has at most %i lines', (page, max) => {
    expect(read(page).trimEnd().split('\n').length).toBeLessThanOrEqual(max)
  })
})

/** Returns the responses printed below a command, one per line. The command runs once for each. */
function answersTo(command: Block): unknown[] {
  const next = blocks[blocks.indexOf(command) + 1]
  if (next?.page !== command.page || next.language !== 'json') return []
  return next.text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown)
}

function shell(command: string): unknown {
  const { stdout, stderr } = spawnSync('sh', ['-c', command.replaceAll(DOCUMENTED_ADDRESS, addressIn(banner))], {
    encoding: 'utf8',
  })
  expect(stderr).toBe('')
  return JSON.parse(stdout)
}

/** Compares times and ids by type, because they differ between runs, and everything else by value and order. */
function shapeOf(answer: unknown): unknown {
  const varies = ['reset_at', 'retry_after', 'retry_after_ms', 'request_id']
  return Object.entries(answer as object).map(([name, value]) => [name, varies.includes(name) ? typeof value : value])
}

/** Makes a snippet that starts a server use a free port, sends one request to it, and stops it. */
function withProbe(code: string): string {
  const listening = code.replace(/^(\w+)\.listen\(3000\)$/m, 'const server = $1.listen(0)')
  return listening === code ? code : `${listening}${PROBE}`
}

const PROBE = `
await new Promise((listening) => server.once('listening', listening))
const answer = await fetch('http://127.0.0.1:' + server.address().port)
console.log(answer.status, answer.headers.get('x-ratelimit-remaining')) // 200 99
server.close()
server.closeAllConnections()
`

/** Returns the expected output of a snippet: the comments after its calls of console.log. */
function commentsIn(code: string): string[] {
  return [...code.matchAll(/console\.log\(.*\) \/\/ (.+)$/gm)].map(([, comment = '']) => comment)
}

/** Resolves the abbreviations of ARCHITECTURE.md: `src/` and `test/` are in the library, `server/` is the service. */
function resolvePath(path: string): string {
  return path.replace(/^(?=(src|test)\/)/, 'packages/sluice/').replace(/^server\//, 'packages/server/')
}

function addressIn(text: string): string {
  return /listens on (\S+)/.exec(text)?.[1] ?? ''
}

function bannerOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = ''
    child.stdout?.on('data', (chunk) => {
      output += chunk
      if (/^ +curl .+\n/m.test(output)) resolve(output)
    })
    child.once('exit', (code) => reject(new Error(`the service exited with ${code} before it listened:\n${output}`)))
  })
}

function read(path: string): string {
  return readFileSync(path, 'utf8')
}
