// Takes one rule, or all of them, out of force at once, without a change of the rules: for the minute in which a rule
// does harm and nobody has time to find out why. What is out of force is told by /readyz, metrics and the log.

import type { Limiter } from 'sluice'
import type { Log } from '../log.ts'
import type { NodeWorkers } from '../workers/node-workers.ts'

/** What is out of force, since when, by whom and why. */
export type Kill = {
  /** null: everything. */
  readonly ruleId: string | null
  readonly since: string
  readonly by: string
  /** Name of the token, where the database knows it. */
  readonly byName?: string | null | undefined
  readonly reason: string | null
}

/** Where it is kept what is out of force. */
export type KillStore = {
  /** Whether it outlives this process and reaches the other nodes. */
  readonly durable: boolean
  /** Both come back when the switch has changed here. */
  kill(kill: Kill): Promise<void>
  revive(ruleId: string | null, by: string, reason: string | null): Promise<void>
}

const TOPIC = 'kills'
/** A rule always has an id. */
const EVERYTHING = ''

/** For a node without a database: a kill holds in all workers of the node, and until the node ends. */
export function killsInMemory(killSwitch: KillSwitch, workers: NodeWorkers): KillStore {
  workers.answer(TOPIC, (kill: Kill | null, key) => {
    const others = killSwitch.kills.filter(({ ruleId }) => (ruleId ?? EVERYTHING) !== key)
    killSwitch.replace(kill === null ? others : [...others, kill])
  })
  const keep = async (ruleId: string | null, kill: Kill | null) => {
    await workers.keep(TOPIC, ruleId ?? EVERYTHING, kill)
  }
  return { durable: false, kill: (kill) => keep(kill.ruleId, kill), revive: (ruleId) => keep(ruleId, null) }
}

export class KillSwitch {
  readonly #limiter: Limiter
  readonly #log: Log
  #kills: readonly Kill[] = []

  constructor(limiter: Limiter, log: Log) {
    this.#limiter = limiter
    this.#log = log
  }

  get kills(): readonly Kill[] {
    return this.#kills
  }

  get everything(): boolean {
    return this.#kills.some(({ ruleId }) => ruleId === null)
  }

  /** Undefined when all rules are in force. */
  inWords(): string | undefined {
    if (this.everything) return 'nothing is enforced'
    const ids = this.#kills.map(({ ruleId }) => ruleId)
    return ids.length === 0 ? undefined : `not enforced: ${ids.join(', ')}`
  }

  /** This is what is out of force from now on, and nothing else. */
  replace(kills: readonly Kill[]): void {
    const before = this.inWords()
    this.#kills = kills
    this.#limiter.suspend(this.everything ? 'everything' : this.#kills.flatMap(({ ruleId }) => ruleId ?? []))
    const now = this.inWords()
    if (now !== before) this.#log.warn({ kills: this.#kills }, `kill switch: ${now ?? 'all rules are in force again'}`)
  }
}
