// Processes with leases on one Redis, which can be killed, and what each of them has written down.

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { LimitNumbers } from 'sluice'
import { type RedisProcess, startRedis } from 'sluice/testing'

/** What one node did with one limit. */
export type Account = {
  /** When it asked for a unit, and when it got one. */
  readonly askedUs: number[]
  readonly admittedUs: number[]
  /** Units in hand or on their way when it ended. */
  held: number
  readonly killed: boolean
}

type Node = { readonly process: ChildProcess; readonly ledger: string; killed: boolean }

/** As leased-node.mjs writes them. */
const [ASKED, ADMITTED] = [0, 1]
const RECORD = 3

export class LeasedFleet {
  readonly redis: RedisProcess
  readonly #limits: readonly LimitNumbers[]
  readonly #folder = mkdtempSync(join(tmpdir(), 'sluice-fleet-'))
  /** Those that there are, and all that there were. */
  readonly #nodes: Node[] = []
  readonly #past: Node[] = []

  static async start(limits: readonly LimitNumbers[], nodes: number): Promise<LeasedFleet> {
    const fleet = new LeasedFleet(await startRedis(), limits)
    try {
      await Promise.all(Array.from({ length: nodes }, (_, index) => fleet.#startNode(index)))
    } catch (error) {
      await fleet.stop()
      throw error
    }
    return fleet
  }

  private constructor(redis: RedisProcess, limits: readonly LimitNumbers[]) {
    this.redis = redis
    this.#limits = limits
  }

  /** Resolves when the node has asked for units of all limits, so many a second of each, for `ms`. */
  async load(index: number, rates: readonly number[], ms: number): Promise<void> {
    const { process } = this.#nodes[index] as Node
    const done = once(process, 'message')
    process.send({ limits: this.#limits, rates, ms })
    await done
  }

  /** Kills a node in the middle of whatever it does, and starts another in its place. */
  async replace(index: number): Promise<void> {
    const node = this.#nodes[index] as Node
    node.killed = true
    const exited = once(node.process, 'exit')
    node.process.kill('SIGKILL')
    await exited
    await this.#startNode(index)
  }

  /** Ends the nodes that are left in good order: they give back what they hold. */
  async end(): Promise<void> {
    await Promise.all(this.#nodes.map(({ process }) => ended(process)))
  }

  /** By limit, then by node. */
  accounts(): Account[][] {
    const read = this.#past.map((node) => this.#read(node))
    return this.#limits.map((_, index) => read.map((byLimit) => byLimit[index] as Account))
  }

  async stop(): Promise<void> {
    await this.end()
    await this.redis.stop()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  async #startNode(index: number): Promise<void> {
    const script = fileURLToPath(new URL('leased-node.mjs', import.meta.url))
    const ledger = join(this.#folder, `${this.#past.length}`)
    const env = { ...process.env, REDIS_URL: this.redis.url, LEDGER: ledger }
    const node: Node = { process: fork(script, { env, execArgv: [] }), ledger, killed: false }
    this.#nodes[index] = node
    this.#past.push(node)
    const failed = once(node.process, 'exit').then(() => {
      throw new Error('a node ended at once: are the packages built?')
    })
    await Promise.race([once(node.process, 'message'), failed])
    failed.catch(() => {}) // it ran
  }

  #read({ ledger, killed }: Node): Account[] {
    const accounts = this.#limits.map((): Account => ({ askedUs: [], admittedUs: [], held: 0, killed }))
    const numbers = new Float64Array(new Uint8Array(readFileSync(ledger)).buffer)
    for (let at = 0; at + RECORD <= numbers.length; at += RECORD) {
      const [kind, index, number] = numbers.subarray(at, at + RECORD) as unknown as [number, number, number]
      const account = accounts[index] as Account // one per limit
      if (kind === ASKED) account.askedUs.push(number)
      else if (kind === ADMITTED) account.admittedUs.push(number)
      else account.held += number
    }
    for (const account of accounts) account.held -= account.admittedUs.length
    return accounts
  }
}

async function ended(process: ChildProcess): Promise<void> {
  if (process.exitCode !== null || process.signalCode !== null) return
  const exited = once(process, 'exit')
  process.send({ end: true })
  await exited
}
