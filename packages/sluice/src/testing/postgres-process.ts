// Starts a real PostgreSQL for a test: free port, temporary folder, removed when stopped. No fsync: data survives a
// killed process, not a power cut.

import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { childStarted } from './child-started.ts'
import { freePort } from './free-port.ts'

export type PostgresProcess = {
  readonly port: number
  /** Holds the data folder, `data`. */
  readonly folder: string
  /** The URL of a new, empty database. */
  createDatabase(template?: string): string
  /** Fast shutdown: closes all connections; data stays. */
  down(): Promise<void>
  /** SIGKILL; data stays. Without synchronous_commit=on, the newest commits are lost. */
  kill(): Promise<void>
  /** Restarts it on the same port, unless it is running. */
  up(): Promise<void>
  stop(): Promise<void>
}

/** Debian installs PostgreSQL outside of PATH. */
const DEBIAN = '/usr/lib/postgresql'
const STARTED = /database system is ready to accept connections/
const FAST = ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off', 'max_connections=200']

/** `more`: lines of postgresql.conf. */
export async function startPostgres(more: readonly string[] = []): Promise<PostgresProcess> {
  const owner = unprivilegedUser()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-postgres-'))
  if (owner !== undefined) chownSync(folder, owner.uid, owner.gid)
  const data = join(folder, 'data')
  const options = { ...owner, cwd: folder, stdio: 'pipe' as const }
  const auth = ['--auth=trust', '--username=sluice', '--encoding=UTF8', '--locale=C']
  execFileSync(program('initdb'), ['-D', data, '--no-sync', ...auth], options)
  const port = await freePort()
  const settings = [...FAST, 'listen_addresses=127.0.0.1', `unix_socket_directories=${folder}`, ...more]
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
  const createDatabase = (template = '') => {
    databases += 1
    const name = `sluice_${databases}`
    const copied = template === '' ? [] : ['--template', template]
    const args = ['-h', '127.0.0.1', '-p', String(port), '-U', 'sluice', ...copied, name]
    execFileSync(program('createdb'), args, options)
    return `postgres://sluice@127.0.0.1:${port}/${name}`
  }
  const abandon = () => {
    child?.kill('SIGQUIT')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', abandon) // in case the test run is interrupted
  const stop = async () => {
    await end('SIGQUIT') // its data is discarded: no clean shutdown needed
    process.off('exit', abandon)
    abandon()
  }
  await up()
  return { port, folder, createDatabase, up, down: () => end('SIGINT'), kill: () => end('SIGKILL'), stop }
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
