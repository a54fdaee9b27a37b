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

/** The status of a request over TLS and whose certificate was met, or the code of what went wrong. */
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

  test('is what the service speaks with a certificate, and nothing else', async () => {
    const { address } = await serveFile(RULE, tls)
    expect(address).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/)
    expect(await tlsGet(`${address}/readyz`)).toBe('200 server')
    await expect(fetch(`${address.replace('https', 'http')}/readyz`)).rejects.toThrow()
  })

  test('with a client CA, only clients with a certificate of it can connect', async () => {
    const { address } = await serveFile(RULE, { ...tls, tlsClientCa: pem('ca.pem') })
    const url = `${address}/readyz`
    expect(await tlsGet(url, identity('client'))).toBe('200 server')
    const refusals = [await tlsGet(url), await tlsGet(url, identity('stranger'))]
    for (const code of refusals) expect(code).toMatch(/^(ERR_SSL_\w+|ECONNRESET|EPIPE)$/)
  })

  test('a certificate is no token: what needs a role still does', async () => {
    const { address } = await serveFile(RULE, { ...tls, tlsClientCa: pem('ca.pem') })
    expect(await tlsGet(address + RULES, identity('client'))).toBe('401 server')
  })

  test('files that do not fit together are told at the start', async () => {
    const start = serveFile(RULE, { ...tls, tlsKey: pem('client.key') })
    await expect(start).rejects.toThrow(/--tls-cert, --tls-key and --tls-client-ca cannot be used: .*mismatch/)
  })

  test('renewed files are used from then on, and bad ones change nothing', async () => {
    const folder = temporaryFolder()
    const [tlsCert, tlsKey] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
    const install = (name: string) => {
      copyFileSync(pem(`${name}.key`), tlsKey)
      copyFileSync(pem(`${name}.pem`), tlsCert)
    }
    install('server')
    const { address, logged } = await serveFile(RULE, { tlsCert, tlsKey })
    writeFileSync(tlsCert, 'nonsense')
    const messages = () => logged.map(({ msg }) => msg)
    await vi.waitFor(() => expect(messages()).toContain('the new certificates cannot be used: the old ones stay'), 5000)
    expect(await tlsGet(`${address}/readyz`)).toBe('200 server')
    install('renewed')
    await vi.waitFor(async () => expect(await tlsGet(`${address}/readyz`)).toBe('200 renewed'), 5000)
  })
})

/** What a check is answered over a socket file. */
async function checkOver(socketPath: string, more: Record<string, string> = {}): Promise<unknown> {
  const headers = { 'content-type': 'application/json', ...more }
  const asked = request({ socketPath, method: 'POST', path: CHECK, headers }).end('{"client_id":"alice"}')
  const [response] = await once(asked, 'response')
  return json(response)
}

describe('a socket file', () => {
  test('is listened on instead of an address, open for checks, and gone afterwards', async () => {
    const socket = join(temporaryFolder(), 'sluice.sock')
    const service = await serveFile(RULE, { socket })
    expect(service.address).toBe(`unix:${socket}`)
    expect(await checkOver(socket)).toMatchObject({ allowed: true, limit: 5 })
    expect(await checkOver(socket, { authorization: 'Bearer wrong' })).toMatchObject({ code: 'UNAUTHORIZED' })
    await service.close()
    expect(existsSync(socket)).toBe(false)
  })

  test('that a dead process has left is replaced, and one in use is not', async () => {
    const socket = join(temporaryFolder(), 'sluice.sock')
    leaveBehind(socket)
    await serveFile(RULE, { socket })
    expect(await checkOver(socket)).toMatchObject({ allowed: true })
    await expect(serveFile(RULE, { socket })).rejects.toMatchObject({ code: 'EADDRINUSE' })
    expect(await checkOver(socket)).toMatchObject({ allowed: true, remaining: 3 })
  })

  test('a file that is no socket is not touched', async () => {
    const socket = join(temporaryFolder(), 'notes.txt')
    writeFileSync(socket, 'mine')
    await expect(serveFile(RULE, { socket })).rejects.toMatchObject({ code: 'EADDRINUSE' })
    expect(existsSync(socket)).toBe(true)
  })
})

/** A socket file that nobody listens on, as kill -9 leaves it. */
function leaveBehind(path: string): void {
  const program = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 9))`
  spawnSync(process.execPath, ['-e', program])
  expect(existsSync(path)).toBe(true)
}
