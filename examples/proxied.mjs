// Shared by the proxy examples: starts an application without limits, Sluice, and the proxy in front of both. The proxy
// ends with this process, even if it is killed.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { connect, createServer as createTcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { createLog, SETTINGS, startServer } from '@sluice/server'
import { parseCidr } from 'sluice/http'

const ATTEMPTS_MAX = 200

/** Shell script: runs the command until stdin closes, which it does when this process ends, then cleans up. */
const UNTIL_END = '"$@" & read -r _; kill $!; { wait $!; } 2>/dev/null; rm -rf "$PWD"'

/** Runs `command` in a copy of the example's folder, with the actual ports written into `file`. */
export async function runProxied(example, file, command) {
  const folder = mkdtempSync(join(tmpdir(), `sluice-example-${example}-`))
  cpSync(fileURLToPath(new URL(example, import.meta.url)), folder, { recursive: true })
  const { PORT = '3000' } = process.env
  const isFixed = PORT !== '0'
  const app = createServer((_request, response) => response.end('hello\n')).listen(isFixed ? 3001 : 0, '127.0.0.1')
  await once(app, 'listening')
  const service = await startSluice(join(folder, 'rules.yaml'), isFixed ? 8080 : 0)
  // The first check prepares the route. On a busy machine HAProxy would repeat it after a second, which counts twice.
  await fetch(`${service.address}/api/v1/rate-limit/auth`, { headers: { 'x-forwarded-for': '192.0.2.1' } })
  const port = isFixed ? Number(PORT) : await freePort()
  const ports = { 3000: port, 3001: app.address().port, 8080: Number(new URL(service.address).port) }
  const text = readFileSync(join(folder, file), 'utf8')
  writeFileSync(
    join(folder, file),
    text.replace(/127\.0\.0\.1:(3000|3001|8080)\b/g, (_, one) => `127.0.0.1:${ports[one]}`),
  )
  const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` } // where Debian keeps nginx and HAProxy
  const stdio = ['pipe', 'inherit', 'inherit']
  const proxy = spawn('sh', ['-c', UNTIL_END, 'sh', ...command], { cwd: folder, env, stdio, detached: true })
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => proxy.stdin.end())
  proxy.once('exit', (code) => process.exit(code === null || code > 128 ? 0 : code))
  await untilListening(port)
  console.log(`http://127.0.0.1:${port}`)
}

function startSluice(rules, port) {
  const defaults = Object.entries(SETTINGS).map(([name, { fallback }]) => [name, fallback()])
  const trustedProxies = [parseCidr('127.0.0.1')]
  return startServer({ ...Object.fromEntries(defaults), rules, port, trustedProxies }, createLog('warn'))
}

async function untilListening(port) {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
    const socket = connect(port, '127.0.0.1')
    const isOpen = await once(socket, 'connect').then(
      () => true,
      () => false,
    )
    socket.destroy()
    if (isOpen) return
    await wait(50)
  }
  throw new Error(`nothing listens on port ${port}`)
}

async function freePort() {
  const server = createTcpServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}
