// clients/python against the service. pip fetches grpcio once into node_modules/.cache; without Python or a package
// index, the test is skipped with the reason.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { STACK_NAMES, serveGrpc } from '../grpc/stacks.ts'

const ROOT = join(import.meta.dirname, '../../../..')
const VERSION = '1.76.0'
const CACHE = join(ROOT, `node_modules/.cache/sluice/grpcio-${VERSION}`)
const RULES = `
- { rule_id: orders, limit: 100, window: 1d, scope: per_user, algorithm: fixed_window, endpoint_pattern: /orders }
- { rule_id: payments, limit: 10, window: 1d, scope: per_user, consistency: strict, endpoint_pattern: /payments }
`

function grpcioMissing(): string | undefined {
  if (existsSync(CACHE)) return undefined
  if (spawnSync('python3', ['--version']).error !== undefined) return 'python3 is not installed'
  const partial = `${CACHE}-partial`
  rmSync(partial, { recursive: true, force: true })
  mkdirSync(partial, { recursive: true })
  const packages = [`grpcio==${VERSION}`, `grpcio-tools==${VERSION}`]
  const args = ['-m', 'pip', 'install', '-q', '--target', partial, ...packages]
  const { status, stderr } = spawnSync('python3', args, { encoding: 'utf8' })
  if (status !== 0) return `pip cannot fetch grpcio: ${stderr.trim().split('\n').at(-1)}`
  renameSync(partial, CACHE)
  return undefined
}

const missing = grpcioMissing()
if (missing !== undefined) process.stderr.write(`sluice: the test of the Python client is skipped: ${missing}\n`)

test.skipIf(missing !== undefined).each(STACK_NAMES)(
  'a client in Python checks, leases and returns units on the %s stack',
  async (stack) => {
    const { grpcUrl } = await serveGrpc(stack, RULES)
    const args = [join(ROOT, 'clients/python/example.py'), new URL(grpcUrl).host, join(ROOT, 'packages/server/proto')]
    const child = spawn('python3', args, { env: { ...process.env, PYTHONPATH: CACHE, PYTHONDONTWRITEBYTECODE: '1' } })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (text) => {
        output += text
      })
    }
    const [code] = await once(child, 'close')
    expect({ code, output }).toEqual({ code: 0, output: 'check True 99\nlease 12\nleft 86\npayments 9\n' })
  },
  120_000,
)
