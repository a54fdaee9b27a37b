// A real PostgreSQL of its own for a test: on a free port, in a temporary folder, gone when stopped. It trades safety
// for speed (no fsync): what a power cut would lose, a killed process does not.

import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { childStarted } from './child-started.ts'
import { freePort } from './free-port.ts'

export type PostgresProcess = {
  readonly port: number
  /** The URL of a new, empty database. */
  createDatabase(): string
  /** Ends it as an administrator would, cutting off whoever is connected; what it holds stays. */
  down(): Promise<void>
  /** Starts it again, on the same port, unless it is up. */
  up(): Promise<void>
  stop(): Promise<void>
}

/** Debian keeps the programs of PostgreSQL out of the PATH. */
const DEBIAN = '/usr/lib/postgresql'
const STARTED = /database system is ready to accept connections/
const FAST = ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off', 'max_connections=200']

export async function startPostgres(): Promise<PostgresProcess> {
  const owner = unprivilegedUser()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-postgres-'))
  if (owner !== undefined) chownSync(folder, owner.uid, owner.gid)
  const data = join(folder, 'data')
  const options = { ...owner, cwd: folder, stdio: 'pipe' as const }
  const auth = ['--auth=trust', '--username=sluice', '--encoding=UTF8', '--locale=C']
  execFileSync(program('initdb'), ['-D', data, '--no-sync', ...auth], options)
  const port = await freePort()
  const settings = [...FAST, 'listen_addresses=127.0.0.1', `unix_socket_directories=${folder}`]
  const args = ['-D', data, '-p', String(port), ...settings.flatMap((setting) => ['-c', setting])]
  let child: ChildProcess | undefined
  const up = async () => {
    if (child !== undefined) return
    child = spawn(program('postgres'), args, options)
    await childStarted(child, 'postgres', STARTED)
  }
  const end = async (signal: NodeJS.Signals) => {
    const running = child
    child = undefined
    if (running === undefined || running.exitCode !== null || running.signalCode !== null) return
    const exit = once(running, 'exit')
    running.kill(signal)
    await exit
  }
  let databases = 0
  const createDatabase = () => {
    databases += 1
    const name = `sluice_${databases}`
    execFileSync(program('createdb'), ['-h', '127.0.0.1', '-p', String(port), '-U', 'sluice', name], options)
    return `postgres://sluice@127.0.0.1:${port}/${name}`
  }
  const abandon = () => {
    child?.kill('SIGQUIT')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', abandon) // when whoever started it is interrupted
  const stop = async () => {
    await end('SIGQUIT') // nothing it holds is worth a clean end
    process.off('exit', abandon)
    abandon()
  }
  await up()
  return { port, createDatabase, up, down: () => end('SIGINT'), stop }
}

/** PostgreSQL refuses to run as root. */
function unprivilegedUser(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined
  const id = (flag: string) => {
    const name = existsSync(DEBIAN) ? 'postgres' : 'nobody'
    return Number(execFileSync('id', [flag, name], { encoding: 'utf8' }))
  }
  return { uid: id('-u'), gid: id('-g') }
}

function program(name: string): string {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN).sort((a, b) => Number(b) - Number(a)) : []
  const found = versions.map((version) => join(DEBIAN, version, 'bin', name)).find(existsSync)
  return found ?? name
}
