// One run of a fleet, from a seed: nodes with leases and guards before one store, load, and whatever can go wrong. What
// comes out is a list of promises that were broken, empty if none was.

import { type Charge, compileLimit, type Limit, type Store, type Taken } from 'sluice'
import { type Random, seededRandom } from 'sluice/testing'
import { guardStore } from '../../src/failure/guard-store.ts'
import { leaseStore } from '../../src/lease/lease-store.ts'
import { ReferenceStore } from '../differential/reference-store.ts'
import { Network, type Weather } from './network.ts'
import { type Admission, Oracle } from './oracle.ts'
import { World } from './world.ts'

const OWNERS = ['a', 'b', 'c']
const DEADLINE_MS = 15
const BURST_EVERY_US = 1_700_000
const BURST_US = 300_000
const CALM: Weather = { lost: 0, broken: 0, slow: 0 }

type Plan = {
  readonly calm: boolean
  readonly weather: Weather
  readonly seconds: number
  /** Some runs have nothing but clocks that jump: among other faults these rarely show. */
  readonly onlyClocks: boolean
  readonly bursty: boolean
  /** Mean time between two requests of a node. */
  readonly pauseUs: number
}

type Node = { store: Store; network: Network; limits: Limit[]; alive: boolean; offsetUs: number; waiting: number }

export async function simulate(seed: number): Promise<string[]> {
  return new Simulation(seededRandom(seed)).run()
}

class Simulation {
  readonly #random: Random
  readonly #world = new World()
  readonly #oracle = new Oracle()
  readonly #central = new ReferenceStore({ nowUs: () => this.#world.nowUs })
  readonly #violations: string[] = []
  readonly #widest = new Map<string, Limit>()
  readonly #plan: Plan
  readonly #nodes: Node[] = []
  #limits: Limit[]
  #generation = 0
  /** Not edited: shortening it while units are on lease is safe only once these are back. */
  readonly #ttlUs: number | undefined
  #loaded = true

  constructor(random: Random) {
    this.#random = random
    const calm = random.next() < 0.3
    const storm = {
      lost: random.pick([0, 0.02, 0.1]),
      broken: random.pick([0, 0.05]),
      slow: random.pick([0, 0.05, 0.2]),
    }
    const weather = calm ? CALM : storm
    const onlyClocks = random.next() < 0.25
    this.#plan = {
      calm,
      onlyClocks,
      bursty: onlyClocks || random.next() < 0.5,
      weather,
      seconds: random.pick([4, 8, 15]),
      pauseUs: random.pick([1_500, 6_000, 40_000]),
    }
    this.#ttlUs = random.pick([undefined, 300_000, 1_500_000])
    this.#limits = this.#newLimits()
    for (let count = random.between(1, 5); count > 0; count -= 1) this.#addNode()
  }

  async run(): Promise<string[]> {
    const { seconds, calm } = this.#plan
    if (!calm) for (let faults = this.#random.between(0, 12); faults > 0; faults -= 1) this.#fault(seconds)
    await this.#world.run(seconds * 1e6)
    this.#loaded = false
    await this.#world.run(100_000)
    if (calm) await this.#settleAll()
    const waiting = this.#nodes.reduce((sum, node) => sum + (node.alive ? node.waiting : 0), 0)
    if (waiting > 0) this.#violations.push(`${waiting} checks were never answered`)
    const resent = this.#nodes.reduce((sum, { network }) => sum + network.resent, 0)
    if (resent > 0) this.#violations.push(`${resent} takes were sent again`)
    return [...this.#violations, ...this.#oracle.violations(this.#widest)]
  }

  #addNode(): void {
    const world = this.#world
    const network = new Network(world, this.#random, this.#plan.weather)
    const node: Node = {
      network,
      limits: this.#limits,
      alive: true,
      waiting: 0,
      offsetUs: this.#random.between(-5_000_000, 5_000_000),
      store: undefined as unknown as Store, // in a moment: its clock and timers need the node
    }
    const timers = world.timers(() => node.alive)
    const random = () => this.#random.next()
    const guarded = guardStore(network.to(this.#central), { timers, random, deadlineMs: DEADLINE_MS })
    node.store = leaseStore(guarded, { timers, clock: { nowUs: () => world.nowUs + node.offsetUs } })
    this.#nodes.push(node)
    this.#request(node)
  }

  /** One request after another, for as long as the node lives. */
  #request(node: Node): void {
    this.#world.after(this.#random.next() * 2 * this.#plan.pauseUs + this.#lullUs(), () => {
      if (!node.alive || !this.#loaded) return
      void this.#check(node)
      this.#request(node)
    })
  }

  /** Bursts that all nodes see at once, and lulls in which leases lie idle and buckets fill up. */
  #lullUs(): number {
    const withinUs = this.#world.nowUs % BURST_EVERY_US
    return this.#plan.bursty && withinUs > BURST_US ? BURST_EVERY_US - withinUs : 0
  }

  async #check(node: Node): Promise<void> {
    const owner = this.#random.pick(OWNERS)
    const min = this.#random.pick([1, 1, 1, 2, 3])
    const limits = node.limits.filter(() => this.#random.next() < 0.4)
    const charges = limits.map((limit): Charge => ({ limit, owner, detail: '', min, max: min, kind: 'enforce' }))
    if (charges.length === 0) return
    const sentUs = this.#world.nowUs
    node.waiting += 1
    const taken = await node.store.take({ charges })
    node.waiting -= 1
    if (!node.alive) return
    const tookMs = (this.#world.nowUs - sentUs) / 1000
    if (tookMs > DEADLINE_MS + 5) this.#violations.push(`a check took ${tookMs} ms`)
    if (!taken.granted) return
    if (taken.source === 'policy') this.#violations.push('closed rules let a request pass')
    // What the store has granted was decided there and then. What was in hand is spent now, or was set aside before
    // the store was asked for the rest.
    const admissions = charges.map(({ limit }, index) => {
      const inHand = taken.grants[index]?.bookedUs !== undefined
      const atUs = taken.source === 'lease' ? this.#world.nowUs : inHand ? sentUs : taken.nowUs
      return this.#oracle.admit(limit, owner, min, atUs)
    })
    if (this.#random.next() < 0.05) this.#giveBackLater(node, charges, taken, admissions)
  }

  #giveBackLater(node: Node, charges: readonly Charge[], taken: Taken, admissions: readonly Admission[]): void {
    this.#world.after(this.#random.between(0, 300_000), () => {
      if (!node.alive) return
      const gives = charges.map((charge, index) => {
        const grant = taken.grants[index]
        const leased = grant?.bookedUs !== undefined
        return { ...charge, units: grant?.units ?? 0, bookedUs: grant?.bookedUs ?? taken.nowUs, leased }
      })
      for (const admission of admissions) admission.units = 0
      void node.store.give(gives)
    })
  }

  #fault(seconds: number): void {
    const kind = this.#plan.onlyClocks ? 'clock' : this.#random.pick(['crash', 'partition', 'edit', 'clock', 'join'])
    this.#world.after(this.#random.next() * seconds * 1e6, () => {
      const node = this.#random.pick(this.#nodes)
      if (kind === 'crash') {
        node.alive = false
        node.network.up = this.#random.next() < 0.5 // what it has sent may still arrive
        this.#addNode()
      }
      if (kind === 'partition') {
        node.network.up = false
        this.#world.after(this.#random.between(10_000, 3_000_000), () => {
          node.network.up = true
        })
      }
      const jumps = this.#plan.onlyClocks ? [-3_600e6] : [-3_600e6, -2e6, -30_000, 30_000, 2e6]
      if (kind === 'clock') node.offsetUs += this.#random.pick(jumps)
      if (kind === 'join') this.#addNode()
      if (kind === 'edit') this.#edit()
    })
  }

  /** New numbers, which each node hears of at another time. */
  #edit(): void {
    this.#generation += 1
    const limits = this.#newLimits()
    this.#limits = limits
    for (const node of this.#nodes) {
      this.#world.after(this.#random.between(0, 500_000), () => {
        node.limits = limits
      })
    }
  }

  /** In calm weather nothing is lost: once all leases are back, the store has counted exactly what was admitted. */
  async #settleAll(): Promise<void> {
    for (const node of this.#nodes) {
      node.alive = false
      void node.store.close()
    }
    await this.#world.run(100_000)
    for (const limit of this.#limits.filter(({ algorithm }) => algorithm === 'fixed_window')) {
      for (const owner of OWNERS) {
        const charge: Charge = { limit, owner, detail: '', min: 1, max: 1, kind: 'enforce' }
        const remaining = this.#central.peek([charge]).grants[0]?.remaining ?? 0
        const admitted = this.#oracle.inWindow(limit, owner, this.#world.nowUs)
        if (limit.capacity - remaining === admitted) continue
        this.#violations.push(`${owner}: ${limit.capacity - remaining} counted, ${admitted} admitted`)
      }
    }
  }

  #newLimits(): Limit[] {
    const { pick } = this.#random
    const ttlUs = this.#ttlUs
    const shared = {
      fact: 'user',
      generation: this.#generation,
      onFail: 'closed',
      lease: { ttlUs, maxShare: pick([0.1, 0.5]) },
    } as const
    const limits = [
      {
        id: 'token',
        algorithm: 'token_bucket',
        units: pick([20, 60, 400]),
        windowUs: pick([1e6, 5e6]),
        burst: pick([20, 100]),
      },
      { id: 'fixed', algorithm: 'fixed_window', units: pick([20, 300]), windowUs: 2e6 },
      { id: 'sliding', algorithm: 'sliding_window', units: pick([20, 300]), windowUs: 2e6 },
      { id: 'log', algorithm: 'sliding_window_log', units: pick([20, 100]), windowUs: 3e6 },
    ] as const
    const compiled = limits.map((numbers) => compileLimit({ ...shared, ...numbers }))
    compiled.push(
      compileLimit({
        id: 'strict',
        fact: 'user',
        onFail: 'closed',
        algorithm: 'token_bucket',
        units: 50,
        windowUs: 1e6,
      }),
    )
    for (const limit of compiled) this.#widen(limit)
    return compiled
  }

  /** After an edit the wider limit may be used up before the other is in force: the oracle allows for either. */
  #widen(limit: Limit): void {
    const known = this.#widest.get(limit.id)
    const wider = known === undefined || limit.units / limit.windowUs > known.units / known.windowUs ? limit : known
    const capacity = Math.max(limit.capacity, known?.capacity ?? 0)
    this.#widest.set(limit.id, { ...wider, capacity })
  }
}
