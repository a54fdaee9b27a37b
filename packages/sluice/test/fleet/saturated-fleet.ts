// Share of a limit that a saturated fleet with leases admits, relative to a strict store with the same requests. Runs
// on virtual time, so that a busy machine has no influence.

import { type Charge, compileLimit, type LimitNumbers, memoryStore, type Store, type Taken } from 'sluice'
import { type Random, seededRandom } from 'sluice/testing'
import { guardStore } from '../../src/failure/guard-store.ts'
import { leaseStore } from '../../src/lease/lease-store.ts'
import { ReferenceStore } from '../differential/reference-store.ts'
import { Network } from '../simulation/network.ts'
import { World } from '../simulation/world.ts'

export type Trial = {
  readonly limit: LimitNumbers
  /** By phase, all equally long: requests per second of each node. */
  readonly phases: readonly (readonly number[])[]
  /** Windows that count, and windows before them that drain the bucket. */
  readonly windows: number
  readonly draining: number
}

const TURN_US = 5_000
const CALM = { lost: 0, broken: 0, slow: 0 }

export async function shareAdmitted(trial: Trial): Promise<number> {
  const fleet = new SaturatedFleet(trial)
  await fleet.run()
  return fleet.admitted / fleet.strictlyAdmitted
}

class SaturatedFleet {
  admitted = 0
  strictlyAdmitted = 0
  readonly #trial: Trial
  readonly #world = new World()
  readonly #random: Random = seededRandom(1)
  readonly #central: Store
  readonly #reference: Store
  readonly #charge: Charge
  readonly #strictCharge: Charge
  readonly #fromUs: number
  readonly #endUs: number

  constructor(trial: Trial) {
    const { limit, windows, draining } = trial
    const clock = { nowUs: () => this.#world.nowUs }
    this.#trial = trial
    // The memory store does not track leases of token buckets; the reference store is slow with logs.
    this.#central = limit.algorithm === 'token_bucket' ? new ReferenceStore(clock) : memoryStore({ clock })
    this.#reference = memoryStore({ clock })
    this.#charge = { limit: compileLimit(limit), owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce' }
    this.#strictCharge = { ...this.#charge, limit: { ...this.#charge.limit, lease: undefined } }
    this.#fromUs = this.#world.nowUs + draining * limit.windowUs
    this.#endUs = this.#fromUs + windows * limit.windowUs
  }

  async run(): Promise<void> {
    this.#trial.phases[0]?.forEach((_, index) => void this.#addNode(index))
    await this.#world.run(this.#endUs - this.#world.nowUs)
  }

  #addNode(index: number): void {
    const world = this.#world
    const timers = world.timers(() => true)
    const network = new Network(world, this.#random, CALM)
    const guarded = guardStore(network.to(this.#central), { timers, random: () => this.#random.next() })
    const store = leaseStore(guarded, { timers, clock: { nowUs: () => world.nowUs } })
    let owed = this.#random.next()
    const turn = () => {
      owed += (this.#rate(index) * TURN_US) / 1e6
      world.after(TURN_US, turn)
      if (owed < 1) return false
      for (; owed >= 1; owed -= 1) this.#check(store)
      return true
    }
    world.after(this.#random.between(0, TURN_US), turn)
  }

  #rate(index: number): number {
    const { phases } = this.#trial
    const done = Math.max(0, (this.#world.nowUs - this.#fromUs) / (this.#endUs - this.#fromUs))
    return phases[Math.min(phases.length - 1, Math.floor(done * phases.length))]?.[index] ?? 0
  }

  #check(store: Store): void {
    if (this.#counts(this.#reference.takeSync?.({ charges: [this.#strictCharge] }))) this.strictlyAdmitted += 1
    const onReply = (taken: Taken) => {
      if (this.#counts(taken)) this.admitted += 1
    }
    const taken = store.take({ charges: [this.#charge] })
    if (taken instanceof Promise) void taken.then(onReply)
    else onReply(taken)
  }

  #counts(taken: Taken | undefined): boolean {
    return taken?.granted === true && this.#world.nowUs >= this.#fromUs && this.#world.nowUs < this.#endUs
  }
}
