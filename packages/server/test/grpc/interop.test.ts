// Official gRPC clients against the listener. Those in other languages run in `npm run soak -- clients`, where each is
// skipped with the reason if its tools or packages are missing. The clients of docs/guides/grpc.md run as printed,
// apart from the address.

import { spawn } from 'node:child_process'
import { existsSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { blocksOf } from '../../../../scripts/snippets.ts'
import { BUILD_MS_MAX, type Client, cacheFolder, failureOf, hasToolchains, pythonWithGrpc } from './programs.ts'
import { type GrpcService, STACK_NAMES, serveGrpc } from './stacks.ts'

const RULE = '- { rule_id: five, limit: 5, window: 1d, scope: per_user, algorithm: fixed_window }\n'
const FIXTURES = fileURLToPath(new URL('../fixtures/', import.meta.url))
const CLIENTS: Readonly<Record<string, () => Client>> = { Go: goClient, Java: javaClient, Python: pythonClient }

describe.runIf(hasToolchains).each(STACK_NAMES)('the %s stack', (stack) => {
  test.for(Object.entries(CLIENTS))(
    'serves the official %s client: reflection, health, calls, errors and a stream',
    { timeout: BUILD_MS_MAX * 2 },
    async ([name, build], { skip }) => {
      const client = build()
      if ('missing' in client) {
        console.warn(`skipped: the ${name} client cannot run here: ${client.missing}`)
        return skip(client.missing)
      }
      const { grpcUrl } = await serveGrpc(stack, RULE)
      expect(JSON.parse(await outputOf([...client.command, grpcUrl.replace('http://', '')]))).toEqual({
        health: 'SERVING',
        allowed: 5,
        invalid: 'REQUEST_INVALID: method: unknown method; did you mean "GET"? (got "GTE")',
        streamed: 5000,
      })
    },
  )
})

async function outputOf([program = '', ...args]: readonly string[], input = ''): Promise<string> {
  const child = spawn(program, args, { cwd: ROOT, stdio: 'pipe' })
  child.stdin.end(input)
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (chunk) => {
    stdout += chunk
  })
  child.stderr.on('data', (chunk) => {
    stderr += chunk
  })
  const code = await new Promise((resolve) => child.on('close', resolve))
  expect([code, stderr]).toEqual([0, ''])
  return stdout
}

function goClient(): Client {
  const source = join(FIXTURES, 'grpc-go')
  const folder = cacheFolder('go', readFileSync(join(source, 'main.go'), 'utf8') + readFileSync(join(source, 'go.sum')))
  const binary = join(folder, 'client')
  if (existsSync(binary)) return { command: [binary] }
  const fresh = `${binary}-${process.pid}`
  const missing = failureOf('go', ['build', '-o', fresh, '.'], source)
  if (missing !== undefined) return { missing }
  renameSync(fresh, binary)
  return { command: [binary] }
}

/** Flags for a short run. */
const JAVA = ['java', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Xshare:auto']

function javaClient(): Client {
  const source = join(FIXTURES, 'grpc-java')
  const pom = join(source, 'pom.xml')
  const folder = cacheFolder('java', readFileSync(join(source, 'Client.java'), 'utf8') + readFileSync(pom))
  const built = join(folder, 'built')
  const command = [...JAVA, '-cp', `${built}:${built}/*`, 'Client']
  if (existsSync(built)) return { command }
  const fresh = `${built}-${process.pid}`
  const missing =
    failureOf('javac', ['-version']) ??
    failureOf('mvn', ['-B', '-q', '-f', pom, 'dependency:copy-dependencies', `-DoutputDirectory=${fresh}`]) ??
    failureOf('javac', ['-cp', `${fresh}/*`, '-d', fresh, join(source, 'Client.java')])
  if (missing !== undefined) return { missing }
  renameSync(fresh, built)
  return { command }
}

function pythonClient(): Client {
  const python = pythonWithGrpc()
  return 'missing' in python ? python : { command: [...python.command, join(FIXTURES, 'grpc-python/client.py')] }
}

const ROOT = fileURLToPath(new URL('../../../..', import.meta.url))
const ONE = '- { rule_id: one, limit: 1, window: 1d, endpoint_pattern: /demo }\n'
const PAGE = 'docs/guides/grpc.md'
const ADDRESS = '127.0.0.1:8081'

/** Output of a program that reads its source from standard input. */
async function printedBy(command: readonly string[], language: string, { grpcUrl }: GrpcService): Promise<string> {
  const block = blocksOf(PAGE).find((one) => one.language === language)
  expect(block?.text).toContain(ADDRESS)
  return outputOf(command, block?.text.replace(ADDRESS, grpcUrl.replace('http://', '')))
}

test.for(STACK_NAMES)('the Node.js client of the guide works on the %s stack', async (stack) => {
  const service = await serveGrpc(stack, ONE)
  const node = [process.execPath, '--input-type=module']
  expect(await printedBy(node, 'node', service)).toBe('allowed\n')
  expect(await printedBy(node, 'node', service)).toMatch(/^wait \d+ s\n$/)
})

test.runIf(hasToolchains).for(STACK_NAMES)(
  'the Python client of the guide works on the %s stack',
  { timeout: 240_000 },
  async (stack, { skip }) => {
    const python = pythonWithGrpc()
    if ('missing' in python) {
      console.warn(`skipped: the Python client cannot run here: ${python.missing}`)
      return skip(python.missing)
    }
    const service = await serveGrpc(stack, ONE)
    const command = [...python.command, '-']
    expect(await printedBy(command, 'python', service)).toBe('allowed\n')
    expect(await printedBy(command, 'python', service)).toMatch(/^wait \d+ s\n$/)
  },
)
