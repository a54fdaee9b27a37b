// A real service node: the compiled `sluice` command in its own process, on a free port.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { getText } from './http-client.ts'

export type Health = {
  /** `ready`, `degraded`, `draining`, or `gone` if it does not answer. */
  readonly status: string
  readonly reasons: readonly string[]
}

type Started = {
  readonly main?: string | undefined
  readonly command?: 'gateway' | undefined
  /** Options of Node.js. */
  readonly nodeArgs?: readonly string[]
}

const MAIN = fileURLToPath(new URL('../../packages/server/bin/sluice.js', import.meta.url))
const STDERR_KEPT = 4000

export class ServiceNode {
  readonly address: URL
  readonly checks: URL
  readonly #process: ChildProcess
  readonly #exited: Promise<unknown>
  #ending = false

  /** `main` is another build of the program, `command` a subcommand such as `gateway`. */
  static async start(
    args: readonly string[],
    { main = MAIN, command, nodeArgs = [] }: Started = {},
  ): Promise<ServiceNode> {
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('SLUICE_'))
    const program = [...nodeArgs, main, ...(command === undefined ? [] : [command])]
    const port = command === 'gateway' ? '--api-port' : '--port'
    const child = spawn(process.execPath, [...program, port, '0', ...args], {
      env: Object.fromEntries(inherited),
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true, // Ctrl-C must reach only this process, which stops the nodes after the load
    })
    const kill = () => child.kill('SIGKILL')
    process.once('exit', kill)
    child.once('exit', () => process.off('exit', kill))
    return new ServiceNode(child, await addressOf(child))
  }

  private constructor(child: ChildProcess, address: string) {
    this.#process = child
    this.#exited = once(child, 'exit')
    this.address = new URL(address)
    this.checks = new URL('/api/v1/rate-limit/check', address)
  }

  get pid(): number {
    return this.#process.pid ?? 0
  }

  /** Whether it exited unexpectedly. */
  get died(): boolean {
    return !this.#ending && !this.#runs
  }

  get #runs(): boolean {
    return this.#process.exitCode === null && this.#process.signalCode === null
  }

  async health(): Promise<Health> {
    const answer = await getText(new URL('/readyz', this.address)).catch(() => '{}')
    const { status = 'gone', reasons = [] } = JSON.parse(answer) as Partial<Health>
    return { status, reasons }
  }

  /** Units that this node has borrowed from pools. */
  async borrowedUnits(): Promise<number> {
    const metrics = await getText(new URL('/metrics', this.address)).catch(() => '')
    return Number(/^sluice_region_borrowed_units_total (\d+)$/m.exec(metrics)?.[1] ?? 0)
  }

  /** Sends SIGTERM: the node drains, finishes requests in flight and exits. */
  async drain(): Promise<void> {
    await this.#end('SIGTERM')
  }

  async stop(): Promise<void> {
    await this.#end('SIGKILL')
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    this.#ending = true
    if (this.#runs) this.#process.kill(signal)
    await this.#exited
  }
}

/** Reads the address from the banner; rejects with stderr if the node exits first. */
function addressOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let [banner, errors] = ['', '']
    child.stdout?.on('data', (chunk: Buffer) => {
      if (banner.includes('curl')) return
      banner += chunk.toString()
      const address = /listens on (\S+)/.exec(banner)?.[1]
      if (address !== undefined && banner.includes('curl')) resolve(address)
    })
    child.stderr?.on('data', (chunk: Buffer) => {
      errors = (errors + chunk.toString()).slice(-STDERR_KEPT)
    })
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`a service node exited with ${code} before it listened:\n${errors}`)))
  })
}
