// Strict HTTP/2 clients of other languages read whole answers through the gateway, in `npm run soak -- clients`. Where
// a language is not installed, its test is skipped and says so; http2-frames.test.ts checks the frames in every run.

import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, type TestContext, test } from 'vitest'
import { hasToolchains } from '../grpc/programs.ts'
import { filesOf, makeCertificate } from './certificate.ts'
import { openGateway, startUpstream } from './setup.ts'

const run = promisify(execFile)
const CLIENTS = join(import.meta.dirname, 'clients')
/** Kept between runs: creating it takes longer than the test. */
const HTTPX = join(import.meta.dirname, '../../../../node_modules/.cache/sluice-httpx-0.28.1')

const authority = makeCertificate('Test Authority')
const own = makeCertificate('localhost', authority)

/** Method, path and bytes to upload of each request; status and bytes of its answer, whatever length a problem has. */
const REQUESTS: readonly [request: string, status: number, bytes: number][] = [
  ['GET /body/5 0', 200, 5],
  ['GET /body/1000000 0', 200, 1_000_000],
  ['GET /trailers 0', 200, 4],
  ['HEAD /body/5 0', 200, 0],
  ['GET /status/204 0', 204, 0],
  ['GET /status/304 0', 304, 0],
  ['GET /status/500 0', 500, 0],
  ['DELETE /body/5 0', 200, 5],
  ['POST /echo 5', 200, 5],
  ['POST /echo 300000', 200, 300_000],
  ['POST /refused 300000', 413, 8],
  ['GET /body/6 0', 200, 6],
  ['GET /banned 0', 429, 0],
  ['POST /banned 300000', 429, 0],
]

async function answersTo(command: string, args: readonly string[]): Promise<Record<string, unknown>[]> {
  const { url } = await startUpstream((request, response) => {
    const [, kind, size] = request.url?.split('/') ?? []
    if (kind === 'body') return void response.end(Buffer.alloc(Number(size)))
    if (kind === 'status') return void response.writeHead(Number(size)).end()
    if (kind === 'echo') return void request.pipe(response)
    if (kind === 'refused') return void response.writeHead(413).end('too much')
    response.writeHead(200, { trailer: 'grpc-status' }).write('data')
    response.addTrailers({ 'grpc-status': '0' })
    response.end()
  })
  const ban = { rule_id: 'ban', endpoint_pattern: '/banned', limit: 0, window: '1d', scope: 'global' }
  const { ca, ...files } = filesOf({ listenCert: own.pem, listenKey: own.keyPem, ca: authority.pem })
  const { address } = await openGateway([ban], { upstream: url, ...files })
  const requests = REQUESTS.map(([request]) => request).join(',')
  const { stdout } = await run(command, [...args, address.replace('127.0.0.1', 'localhost'), ca, requests], {
    timeout: 60_000,
  })
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
}

function expectWhole(answers: readonly Record<string, unknown>[]): void {
  const expected = REQUESTS.map(([request, status, bytes]) => {
    return { request, version: 2, status, ...(status === 429 ? {} : { bytes }) }
  })
  expect(answers).toMatchObject(expected)
}

async function skipWithout(context: TestContext, program: string, ...args: string[]): Promise<void> {
  const missing = await run(program, args).then(
    () => undefined,
    (error: Error) => error.message,
  )
  if (missing !== undefined) skip(context, `${program} is not installed`)
}

function skip(context: TestContext, reason: string): never {
  process.stderr.write(`skipped: ${context.task.name}: ${reason}\n`)
  return context.skip(reason)
}

const MINUTES = { timeout: 300_000 }

test.runIf(hasToolchains)('Go, trailers too', MINUTES, async (context) => {
  await skipWithout(context, 'go', 'version')
  const folder = mkdtempSync(join(tmpdir(), 'sluice-go-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const env = { ...process.env, CGO_ENABLED: '0' } // compiles half as much
  await run('go', ['build', '-o', join(folder, 'client'), join(CLIENTS, 'main.go')], { env })
  const answers = await answersTo(join(folder, 'client'), [])
  expectWhole(answers)
  expect(answers[2]).toMatchObject({ trailers: { 'grpc-status': '0' } })
})

test.runIf(hasToolchains)('Java', MINUTES, async (context) => {
  await skipWithout(context, 'java', '--list-modules')
  expectWhole(await answersTo('java', [join(CLIENTS, 'Client.java')]))
})

test.runIf(hasToolchains)('httpx for Python', MINUTES, async (context) => {
  await skipWithout(context, 'python3', '-c', 'import venv, ensurepip')
  const python = join(HTTPX, 'bin/python')
  if (!existsSync(join(HTTPX, 'pyvenv.cfg')) || !(await canImport(python))) {
    await run('python3', ['-m', 'venv', '--clear', HTTPX])
    await run(python, ['-m', 'pip', 'install', '--quiet', 'httpx[http2]==0.28.1']).catch((error: Error) => {
      skip(context, `pip cannot install httpx: ${error.message}`)
    })
  }
  expectWhole(await answersTo(python, [join(CLIENTS, 'client.py')]))
})

function canImport(python: string): Promise<boolean> {
  return run(python, ['-c', 'import httpx, h2']).then(
    () => true,
    () => false,
  )
}
