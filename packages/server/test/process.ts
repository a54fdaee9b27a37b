// The command as users run it: the compiled program in its own process.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { temporaryFolder } from './databases.ts'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const MAIN = fileURLToPath(new URL('../bin/sluice.js', import.meta.url))

export type Ended = { readonly code: number | null; readonly stdout: string; readonly stderr: string }

/** Runs the command to its end. */
export function run(args: readonly string[], env: Record<string, string> = {}): Ended {
  const { status: code, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], options(env))
  return { code, stdout, stderr }
}

export type Running = {
  readonly address: string
  readonly pid: number
  /** Output so far. */
  output(): Omit<Ended, 'code'>
  signal(name: NodeJS.Signals): void
  ended(): Promise<Ended>
}

/** Starts the command, on a free port unless told otherwise, and waits for its banner. */
export async function start(args: readonly string[], env: Record<string, string> = {}): Promise<Running> {
  const flag = args[0] === 'gateway' ? '--api-port' : '--port'
  const port = args.includes(flag) ? [] : [flag, '0']
  const child = spawn(process.execPath, [MAIN, ...args, ...port], { ...options(env), stdio: 'pipe' })
  const exit = once(child, 'close') as Promise<[number | null]>
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await exit
  })
  const output = collect(child)
  const address = await addressIn(child, output)
  const ended = async () => ({ code: (await exit)[0], ...output() })
  return { address, pid: child.pid ?? 0, output, ended, signal: (name) => child.kill(name) }
}

/** Environment in which this module runs first, in the process and in its workers. */
export function preloading(source: string): Record<string, string> {
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(source)}` }
}

/** Each process has its own data folder, unless the test gives one. */
function options(env: Record<string, string>) {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('SLUICE_'))
  const own = env.SLUICE_DATA_DIR ? {} : { SLUICE_DATA_DIR: temporaryFolder() }
  return { cwd: ROOT, encoding: 'utf8' as const, env: { ...Object.fromEntries(inherited), ...own, ...env } }
}

function collect(child: ChildProcess): Running['output'] {
  let stdout = ''
  let stderr = ''
  child.stdout?.on('data', (chunk) => {
    stdout += chunk
  })
  child.stderr?.on('data', (chunk) => {
    stderr += chunk
  })
  return () => ({ stdout, stderr })
}

function addressIn(child: ChildProcess, output: Running['output']): Promise<string> {
  return new Promise((resolve, reject) => {
    child.stdout?.on('data', () => {
      const { stdout } = output()
      const address = /listens on (\S+)/.exec(stdout)?.[1]
      if (address !== undefined && stdout.includes('curl ')) resolve(address)
    })
    child.once('exit', (code) => reject(new Error(`ended with ${code} before it listened:\n${output().stderr}`)))
  })
}
