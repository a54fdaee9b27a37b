// A real nginx or HAProxy for one test, with the configuration of examples/ on free ports.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished, vi } from 'vitest'
import { freePort } from '../../../sluice/src/testing/free-port.ts'

const EXAMPLES = fileURLToPath(new URL('../../../../examples', import.meta.url))

/** Command that starts each proxy in its folder, in the foreground. */
const COMMANDS = {
  nginx: ['nginx', '-p', '.', '-c', 'nginx.conf', '-e', 'stderr', '-g', 'daemon off;'],
  haproxy: ['haproxy', '-f', 'haproxy.cfg'],
} as const

export type ProxyName = keyof typeof COMMANDS

export type Ports = { readonly service: number; readonly app: number }

/** `edit` changes the configuration before the start. */
export async function startProxy(
  name: ProxyName,
  { service, app }: Ports,
  edit: (configuration: string) => string = (text) => text,
): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), `sluice-${name}-`))
  cpSync(join(EXAMPLES, name), folder, { recursive: true })
  const port = await freePort()
  for (const file of readdirSync(folder).filter((one) => /\.(conf|cfg)$/.test(one))) {
    const path = join(folder, file)
    const ports = { '3000': port, '3001': app, '8080': service }
    const text = readFileSync(path, 'utf8').replace(
      /127\.0\.0\.1:(3000|3001|8080)\b/g,
      (_, documented: keyof typeof ports) => {
        return `127.0.0.1:${ports[documented]}`
      },
    )
    writeFileSync(path, edit(text))
  }
  const [command, ...args] = COMMANDS[name]
  const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` } // where Debian keeps programs of the system
  const child = spawn(command, args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text) => {
      output += text
    })
  }
  const exit = once(child, 'exit')
  onTestFinished(async () => {
    child.kill(name === 'nginx' ? 'SIGTERM' : 'SIGKILL') // nginx has workers, which it ends itself
    await exit
    rmSync(folder, { recursive: true, force: true })
  })
  await vi
    .waitFor(() => listens(port), { timeout: 20_000 })
    .catch((cause) => {
      throw new Error(`${name} does not listen:\n${output}`, { cause })
    })
  return `http://127.0.0.1:${port}`
}

async function listens(port: number): Promise<void> {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  socket.destroy()
}
