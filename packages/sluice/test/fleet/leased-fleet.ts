// A fleet of processes with leases on one Redis, which can be killed, and the ledger that each of them writes.

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { LimitNumbers } from 'sluice'
import { type RedisProcess, startRedis } from 'sluice/testing'

/** Ledger of one node for one limit. */
export type Account = {
  /** Times of requests and of admissions. */
  readonly requestedUs: number[]
  readonly admittedUs: number[]
  /** Units on lease or in flight when the node ended. */
  held: number
  readonly killed: boolean
}

type Node = { readonly process: ChildProcess; readonly ledger: string; killed: boolean }

/** Kinds of records, as in leased-node.mjs. */
const [REQUESTED, ADMITTED] = [0, 1]
const RECORD = 3

export class LeasedFleet {
  readonly redis: RedisProcess
  readonly #limits: readonly LimitNumbers[]
  readonly #folder = mkdtempSync(join(tmpdir(), 'sluice-fleet-'))
  /** Running nodes by index, and all nodes ever started. */
  readonly #nodes: Node[] = []
  readonly #started: Node[] = []

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

  /** Runs a node for `ms`, with the given requests per second for each limit. */
  async load(index: number, rates: readonly number[], ms: number): Promise<void> {
    const { process } = this.#nodes[index] as Node
    const done = once(process, 'message')
    process.send({ limits: this.#limits, rates, ms })
    await done
  }

  /** Kills a node with SIGKILL and starts another one. */
  async replace(index: number): Promise<void> {
    const node = this.#nodes[index] as Node
    node.killed = true
    const exited = once(node.process, 'exit')
    node.process.kill('SIGKILL')
    await exited
    await this.#startNode(index)
  }

  /** Shuts the running nodes down: they give their leases back. */
  async end(): Promise<void> {
    await Promise.all(this.#nodes.map(({ process }) => endProcess(process)))
  }

  /** By limit, then by node. */
  accounts(): Account[][] {
    const read = this.#started.map((node) => this.#read(node))
    return this.#limits.map((_, index) => read.map((byLimit) => byLimit[index] as Account))
  }

  async stop(): Promise<void> {
    await this.end()
    await this.redis.stop()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  async #startNode(index: number): Promise<void> {
    const script = fileURLToPath(new URL('leased-node.mjs', import.meta.url))
    const ledger = join(this.#folder, `${this.#started.length}`)
    const env = { ...process.env, REDIS_URL: this.redis.url, LEDGER: ledger }
    const node: Node = { process: fork(script, { env, execArgv: [] }), ledger, killed: false }
    this.#nodes[index] = node
    this.#started.push(node)
    const failed = once(node.process, 'exit').then(() => {
      throw new Error('a node exited at the start: are the packages built?')
    })
    await Promise.race([once(node.process, 'message'), failed])
    failed.catch(() => {}) // it ran
  }

  #read({ ledger, killed }: Node): Account[] {
    const accounts = this.#limits.map((): Account => ({ requestedUs: [], admittedUs: [], held: 0, killed }))
    const numbers = new Float64Array(new Uint8Array(readFileSync(ledger)).buffer)
    for (let at = 0; at + RECORD <= numbers.length; at += RECORD) {
      const [kind, index, number] = numbers.subarray(at, at + RECORD) as unknown as [number, number, number]
      const account = accounts[index] as Account // one per limit
      if (kind === REQUESTED) account.requestedUs.push(number)
      else if (kind === ADMITTED) account.admittedUs.push(number)
      else account.held += number
    }
    for (const account of accounts) account.held -= account.admittedUs.length
    return accounts
  }
}

async function endProcess(process: ChildProcess): Promise<void> {
  if (process.exitCode !== null || process.signalCode !== null) return
  const exited = once(process, 'exit')
  process.send({ end: true })
  await exited
}
