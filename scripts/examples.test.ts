// Each example starts with the first command of its README, and the second command prints the documented output.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { afterEach, describe, expect, it } from 'vitest'

const DOCUMENTED_ADDRESS = 'http://127.0.0.1:3000'
const START = /^npm run example -- ([\w-]+)$/

const pages = readdirSync('examples')
  .map((name) => ({ name, readme: `examples/${name}/README.md` }))
  .filter(({ readme }) => existsSync(readme))
  .map(({ name, readme }) => ({ name, blocks: blocksOf(readFileSync(readme, 'utf8')) }))
const examples = pages.filter(({ blocks }) => START.test(blocks[0] ?? ''))
const hasCurl = spawnSync('curl', ['--version']).status === 0

let child: ChildProcess | undefined

afterEach(async () => {
  const running = child
  child = undefined
  if (running === undefined || running.exitCode !== null) return
  const exited = once(running, 'exit')
  running.kill('SIGKILL')
  await exited
})

describe.skipIf(!hasCurl)('examples', () => {
  it.for(examples)('$name works as documented', async ({ name, blocks: [start = '', command = '', printed] }) => {
    expect(START.exec(start)?.[1]).toBe(name)
    child = spawn(process.execPath, ['scripts/example.mjs', name], {
      env: { ...process.env, PORT: '0' },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const address = await addressOf(child)
    const asked = command.replaceAll(DOCUMENTED_ADDRESS, address)
    expect(spawnSync('sh', ['-c', asked], { encoding: 'utf8' })).toMatchObject({ stderr: '', stdout: `${printed}\n` })
  })
})

it('there is an example for every middleware, for proxies and for two layers', () => {
  const middlewares = ['express', 'fastify', 'fetch-handler', 'hono', 'koa', 'nest', 'node-http']
  const names = [...middlewares, 'nginx', 'haproxy', 'gateway-and-service']
  expect(examples.map(({ name }) => name)).toEqual(expect.arrayContaining(names))
})

it('`npm run example` runs the same script', () => {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> }
  expect(scripts.example, 'exec, because a shell would not forward signals from npm').toBe(
    'exec node scripts/example.mjs',
  )
})

it('SIGTERM to `npm run example -- nginx` also stops nginx', async () => {
  child = spawn('npm', ['run', 'example', '--', 'nginx'], {
    env: { ...process.env, PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const address = await addressOf(child)
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  await exited
  await expect
    .poll(() =>
      fetch(address).then(
        () => 'answers',
        () => 'gone',
      ),
    )
    .toBe('gone')
})

function blocksOf(page: string): string[] {
  return [...page.matchAll(/^```\w+\n([\s\S]*?)\n```$/gm)].map(([, text = '']) => text)
}

function addressOf(started: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = ''
    started.stdout?.on('data', (chunk) => {
      output += chunk
      const address = /^http:\/\/\S+:\d+$/m.exec(output)?.[0]
      if (address !== undefined) resolve(address)
    })
    started.once('exit', (code) => reject(new Error(`it exited with ${code} before it listened:\n${output}`)))
  })
}
