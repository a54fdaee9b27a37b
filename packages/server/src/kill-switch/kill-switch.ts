// Disables one rule, or all of them, immediately and without changing the rules: for a rule that does harm. Disabled
// rules show in /readyz, metrics and the log.

import type { Limiter } from 'sluice'
import type { Log } from '../log.ts'
import type { NodeWorkers } from '../workers/node-workers.ts'

/** A disabled rule: since when, by whom and why. */
export type Kill = {
  /** null: all rules. */
  readonly ruleId: string | null
  readonly since: string
  readonly by: string
  /** Name of the token, if the database has it. */
  readonly byName?: string | null | undefined
  readonly reason: string | null
}

/** Storage of disabled rules. */
export type KillStore = {
  /** Whether it is stored in the database, and so applies to all nodes and after a restart. */
  readonly durable: boolean
  /** Both resolve once the change is active on this node. */
  disable(kill: Kill): Promise<void>
  enable(ruleId: string | null, by: string, reason: string | null): Promise<void>
}

const TOPIC = 'kills'
/** Key for all rules: rule ids are never empty. */
const EVERYTHING = ''

/** For a node without a database: applies to all workers, until the node stops. */
export function killsInMemory(killSwitch: KillSwitch, workers: NodeWorkers): KillStore {
  workers.answer(TOPIC, (kill: Kill | null, key) => {
    const others = killSwitch.kills.filter(({ ruleId }) => (ruleId ?? EVERYTHING) !== key)
    killSwitch.replace(kill === null ? others : [...others, kill])
  })
  const keep = async (ruleId: string | null, kill: Kill | null) => {
    await workers.keep(TOPIC, ruleId ?? EVERYTHING, kill)
  }
  return { durable: false, disable: (kill) => keep(kill.ruleId, kill), enable: (ruleId) => keep(ruleId, null) }
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

  /** Undefined when no rule is disabled. */
  describe(): string | undefined {
    if (this.everything) return 'all rules are disabled'
    const ids = this.#kills.map(({ ruleId }) => ruleId)
    return ids.length === 0 ? undefined : `disabled: ${ids.join(', ')}`
  }

  /** Replaces the set of disabled rules. */
  replace(kills: readonly Kill[]): void {
    const before = this.describe()
    this.#kills = kills
    this.#limiter.disable(this.everything ? 'everything' : this.#kills.flatMap(({ ruleId }) => ruleId ?? []))
    if (this.describe() === before) return
    const disabled = this.everything ? 'all' : this.#kills.map(({ ruleId }) => ruleId)
    this.#log.event('kill_switch_changed', { disabled, kills: this.#kills })
  }
}
