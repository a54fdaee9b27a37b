// The HTTP/2 conformance suite h2spec against the lean server. It is built once from the Go module proxy.

import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, type TestContext, test } from 'vitest'
import { makeCertificate } from '../../gateway/certificate.ts'
import { type EchoServer, startEcho } from './echo-server.ts'

const run = promisify(execFile)
const VERSION = 'v2.2.1+incompatible'
const CACHE = join(import.meta.dirname, '../../../../../node_modules/.cache/sluice/h2spec')
const PROGRAM = join(CACHE, 'h2spec')
const MINUTES = { timeout: 300_000 }

let missing: string | undefined
let plain: EchoServer
let secure: EchoServer

beforeAll(async () => {
  missing = await build()
  plain = await startEcho()
  const { pem: cert, keyPem: key } = makeCertificate('localhost')
  secure = await startEcho({ tls: { cert, key } })
}, MINUTES.timeout)

afterAll(async () => {
  await plain.server.close(0)
  await secure.server.close(0)
})

test('every case of h2spec passes over cleartext', MINUTES, async (context) => {
  skipIfMissing(context)
  expect(await summary(plain.port)).toBe('145 tests, 145 passed, 0 skipped, 0 failed')
  expect(plain.errors).toEqual([])
})

test('every case of h2spec passes over TLS', MINUTES, async (context) => {
  skipIfMissing(context)
  expect(await summary(secure.port, '--tls', '--insecure')).toMatch(/^\d+ tests, (\d+) passed, 0 skipped, 0 failed$/)
  expect(secure.errors).toEqual([])
})

/** Last line of h2spec, after its list of failed cases. */
async function summary(port: number, ...flags: string[]): Promise<string> {
  const args = ['--host', '127.0.0.1', '--port', String(port), '--timeout', '5', ...flags]
  const { stdout } = await run(PROGRAM, args).catch((error: { stdout: string }) => error)
  const from = Math.max(stdout.indexOf('Failures:'), 0)
  return from > 0 ? stdout.slice(from) : (stdout.trimEnd().split('\n').at(-1) ?? '')
}

/** Returns why h2spec cannot be built. */
async function build(): Promise<string | undefined> {
  if (existsSync(PROGRAM)) return undefined
  const hasGo = await run('go', ['version']).then(
    () => true,
    () => false,
  )
  if (!hasGo) return 'Go is not installed'
  const env = { ...process.env, GOBIN: CACHE, CGO_ENABLED: '0', GOFLAGS: '-mod=mod' }
  return run('go', ['install', `github.com/summerwind/h2spec/cmd/h2spec@${VERSION}`], { env }).then(
    () => undefined,
    (error: Error) => `h2spec cannot be built: ${error.message.split('\n').slice(0, 3).join(' ')}`,
  )
}

function skipIfMissing(context: TestContext): void {
  if (missing === undefined) return
  process.stderr.write(`skipped: ${context.task.name}: ${missing}\n`)
  context.skip(missing)
}
