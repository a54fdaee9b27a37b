import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { get, type RequestOptions } from 'node:https'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { describe, expect, test, vi } from 'vitest'
import { temporaryFolder } from './databases.ts'
import { CHECK, RULES, serveFile } from './service.ts'

const RULE = '- { rule_id: one, limit: 5, window: 1d, scope: per_user }\n'
const pem = (name: string) => fileURLToPath(new URL(`fixtures/tls/${name}`, import.meta.url))
const read = (name: string) => readFileSync(pem(name))

/** Status of a request over TLS and the subject of the certificate, or the error code. */
async function tlsGet(url: string, options: RequestOptions = {}): Promise<string> {
  const asked = get(url, { ca: read('ca.pem'), agent: false, ...options })
  try {
    const [response] = await once(asked, 'response')
    const { subject } = response.socket.getPeerCertificate()
    response.resume()
    return `${response.statusCode} ${subject.CN}`
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code)
  }
}

const identity = (name: string) => ({ cert: read(`${name}.pem`), key: read(`${name}.key`) })

describe('TLS', () => {
  const tls = { tlsCert: pem('server.pem'), tlsKey: pem('server.key') }

  test('is the only protocol of a service with a certificate', async () => {
    const { address } = await serveFile(RULE, tls)
    expect(address).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/)
    expect(await tlsGet(`${address}/readyz`)).toBe('200 server')
    await expect(fetch(`${address.replace('https', 'http')}/readyz`)).rejects.toThrow()
  })

  test('with a client CA, only clients with a certificate signed by it can connect', async () => {
    const { address } = await serveFile(RULE, { ...tls, tlsClientCa: pem('ca.pem') })
    const url = `${address}/readyz`
    expect(await tlsGet(url, identity('client'))).toBe('200 server')
    const refusals = [await tlsGet(url), await tlsGet(url, identity('stranger'))]
    for (const code of refusals) expect(code).toMatch(/^(ERR_SSL_\w+|ECONNRESET|EPIPE)$/)
  })

  test('a certificate does not replace a token: routes still require their role', async () => {
    const { address } = await serveFile(RULE, { ...tls, tlsClientCa: pem('ca.pem') })
    expect(await tlsGet(address + RULES, identity('client'))).toBe('401 server')
  })

  test('a key that does not match the certificate fails the start', async () => {
    const start = serveFile(RULE, { ...tls, tlsKey: pem('client.key') })
    await expect(start).rejects.toThrow(/--tls-cert, --tls-key and --tls-client-ca cannot be used: .*mismatch/)
  })

  test('renewed files apply to new connections, and invalid ones change nothing', async () => {
    const folder = temporaryFolder()
    const [tlsCert, tlsKey] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
    const install = (name: string) => {
      copyFileSync(pem(`${name}.key`), tlsKey)
      copyFileSync(pem(`${name}.pem`), tlsCert)
    }
    install('server')
    const { address, logged } = await serveFile(RULE, { tlsCert, tlsKey })
    writeFileSync(tlsCert, 'nonsense')
    const events = () => logged.map(({ event }) => event)
    await vi.waitFor(() => expect(events()).toContain('certificates_rejected'), 5000)
    expect(await tlsGet(`${address}/readyz`)).toBe('200 server')
    install('renewed')
    await vi.waitFor(async () => expect(await tlsGet(`${address}/readyz`)).toBe('200 renewed'), 5000)
  })
})

/** Answer to a check over a socket file. */
async function checkOver(socketPath: string, more: Record<string, string> = {}): Promise<unknown> {
  const headers = { 'content-type': 'application/json', ...more }
  const asked = request({ socketPath, method: 'POST', path: CHECK, headers }).end('{"client_id":"alice"}')
  const [response] = await once(asked, 'response')
  return json(response)
}

describe('a socket file', () => {
  test('replaces the address, is open for checks, and is removed at the end', async () => {
    const socket = join(temporaryFolder(), 'sluice.sock')
    const service = await serveFile(RULE, { socket })
    expect(service.address).toBe(`unix:${socket}`)
    expect(await checkOver(socket)).toMatchObject({ allowed: true, limit: 5 })
    expect(await checkOver(socket, { authorization: 'Bearer wrong' })).toMatchObject({ code: 'UNAUTHORIZED' })
    await service.close()
    expect(existsSync(socket)).toBe(false)
  })

  test('left by a dead process is replaced; one in use is not', async () => {
    const socket = join(temporaryFolder(), 'sluice.sock')
    leaveBehind(socket)
    await serveFile(RULE, { socket })
    expect(await checkOver(socket)).toMatchObject({ allowed: true })
    await expect(serveFile(RULE, { socket })).rejects.toMatchObject({ code: 'EADDRINUSE' })
    expect(await checkOver(socket)).toMatchObject({ allowed: true, remaining: 3 })
  })

  test('a file that is not a socket is not touched', async () => {
    const socket = join(temporaryFolder(), 'notes.txt')
    writeFileSync(socket, 'mine')
    await expect(serveFile(RULE, { socket })).rejects.toMatchObject({ code: 'EADDRINUSE' })
    expect(existsSync(socket)).toBe(true)
  })
})

/** A stale socket file, as kill -9 leaves it. */
function leaveBehind(path: string): void {
  const program = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 9))`
  spawnSync(process.execPath, ['-e', program])
  expect(existsSync(path)).toBe(true)
}
