// One run of a fleet, from a seed: nodes with leases and guards before one store, load, and whatever can go wrong. What
// comes out is a list of promises that were broken, empty if none was.

import { type Charge, compileLimit, type Grant, type Limit, type Store, type Taken } from 'sluice'
import { type Random, seededRandom } from 'sluice/testing'
import { guardStore } from '../../src/failure/guard-store.ts'
import { leaseStore } from '../../src/lease/lease-store.ts'
import { promised } from '../../src/maybe.ts'
import { ReferenceStore } from '../differential/reference-store.ts'
import { Network, type Weather } from './network.ts'
import { type Admission, Oracle } from './oracle.ts'
import { World } from './world.ts'

const OWNERS = ['a', 'b', 'c']
/** As many nodes as are said to share the limits, for rules that count locally. */
const NODES = 2
/** An edit is known everywhere after so long. */
const SPREAD_US = 500_000
const DEADLINE_MS = 15
const BURST_EVERY_US = 1_700_000
const BURST_US = 300_000
const TTLS_US = [undefined, 300_000, 1_500_000]
const ON_FAIL: readonly OnFail[] = ['closed', 'closed', 'open', 'local']
/** Of a log: no unit leaves it before a run ends. */
const LONGER_THAN_RUN_US = 60e6
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
  /** Share of admitted requests that give their units back. */
  readonly refunded: number
}

type Node = {
  store: Store
  readonly network: Network
  limits: Limit[]
  alive: boolean
  offsetUs: number
  waiting: number
  /** What it admitted of its own part of limits, while the store was away. */
  readonly local: Oracle
}

type OnFail = Limit['onFail']

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
  /** From when on the bound is exact again, after an edit that made leases shorter. */
  readonly #exactSinceUs = new Map<string, number>()
  /** When every node knows of an edit after which its own part forgets, as the bucket itself does: see #awaitLeases. */
  readonly #forgotUs = new Map<string, number>()
  readonly #widestParts = new Map<string, Limit>()
  readonly #plan: Plan
  readonly #nodes: Node[] = []
  #limits: Limit[]
  #generation = 0
  #gives = 0
  /** By limit. */
  readonly #onFail = new Map<string, OnFail>()
  #ttlUs: number | undefined
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
      refunded: random.pick([0.05, 0.05, 0.6]),
    }
    this.#ttlUs = random.pick(TTLS_US)
    for (const id of ['token', 'fixed', 'sliding', 'log', 'strict']) this.#onFail.set(id, random.pick(ON_FAIL))
    this.#limits = this.#newLimits()
    for (let count = random.between(1, 5); count > 0; count -= 1) this.#addNode()
  }

  async run(): Promise<string[]> {
    const { seconds, calm } = this.#plan
    if (!calm) for (let faults = this.#random.between(0, 12); faults > 0; faults -= 1) this.#fault(seconds)
    await this.#world.run(seconds * 1e6)
    this.#loaded = false
    await this.#world.run(100_000)
    await this.#settleAll()
    const waiting = this.#nodes.reduce((sum, node) => sum + (node.alive ? node.waiting : 0), 0)
    if (waiting > 0) this.#violations.push(`${waiting} checks were never answered`)
    const resent = this.#nodes.reduce((sum, { network }) => sum + network.resent, 0)
    if (resent > 0) this.#violations.push(`${resent} takes were sent again`)
    const globally = this.#oracle.violations(this.#widest, this.#exactSinceUs)
    const locally = this.#nodes.flatMap(({ local }) => local.violations(this.#widestParts, this.#forgotUs))
    return [...this.#violations, ...globally, ...locally.map((line) => `of its part, ${line}`)]
  }

  #addNode(): void {
    const world = this.#world
    const network = new Network(world, this.#random, this.#plan.weather)
    const node: Node = {
      network,
      limits: this.#limits,
      alive: true,
      waiting: 0,
      local: new Oracle(),
      offsetUs: this.#random.between(-5_000_000, 5_000_000),
      store: undefined as unknown as Store, // in a moment: its clock and timers need the node
    }
    const timers = world.timers(() => node.alive)
    const random = () => this.#random.next()
    const clock = { nowUs: () => world.nowUs }
    const options = { timers, random, clock, deadlineMs: DEADLINE_MS, nodes: NODES }
    const guarded = guardStore(network.to(this.#central), options)
    node.store = leaseStore(stamped(guarded, clock.nowUs), {
      timers,
      clock: { nowUs: () => world.nowUs + node.offsetUs },
    })
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
    this.#judgePolicy(charges, taken)
    if (!taken.granted) return
    const admissions = this.#admissions(node, charges, taken, sentUs)
    if (this.#random.next() < this.#plan.refunded) this.#giveBackLater(node, charges, taken, admissions)
  }

  /** Without the store, closed rules let nothing pass but what is in hand, and open ones refuse nothing. */
  #judgePolicy(charges: readonly Charge[], { granted, grants, source }: Taken): void {
    if (source !== 'policy' && source !== 'local') return
    const asked = charges.filter((_, index) => grants[index]?.bookedUs === undefined)
    const closed = asked.some(({ limit }) => limit.onFail === 'closed')
    if (granted && closed) this.#violations.push('a closed rule let a request pass')
    if (!granted && !closed && source === 'policy') this.#violations.push('open rules refused a request')
  }

  /**
   * What the store has granted was decided there and then. What was in hand is spent now, or was set aside when the
   * store was asked for the rest: perhaps after a wait for what others asked, so not before it was charged. What was
   * let pass without the store is no part of the bound, but for a node's own.
   */
  #admissions(node: Node, charges: readonly Charge[], taken: Taken, sentUs: number): Admission[] {
    const { nowUs } = this.#world
    const { askedUs } = taken as Stamped
    return charges.flatMap(({ limit, owner, min }, index) => {
      const { bookedUs } = taken.grants[index] as Grant // one per charge
      if (bookedUs !== undefined) {
        const spentUs = taken.source === 'lease' ? nowUs : Math.max(askedUs ?? sentUs, bookedUs)
        return this.#oracle.admit(limit, owner, min, spentUs)
      }
      if (taken.source === 'store') return this.#oracle.admit(limit, owner, min, taken.nowUs)
      if (limit.onFail === 'local') node.local.admit(limit, owner, min, nowUs)
      return []
    })
  }

  /** Through the node that admitted the request, or by a receipt through another one; perhaps twice. */
  #giveBackLater(node: Node, charges: readonly Charge[], taken: Taken, admissions: readonly Admission[]): void {
    this.#gives += 1
    const random = seededRandom(this.#gives) // of its own: the rest of a run is the same with and without receipts
    const through = random.next() < 0.5 ? node : random.pick(this.#nodes)
    const once = { id: `give ${this.#gives}`, lastsUs: 3_600e6 }
    const remote = through !== node
    const laterUs = remote ? random.between(0, 3_000_000) : 0 // a receipt may be redeemed long after the check
    this.#world.after(this.#random.between(0, 300_000) + laterUs, () => {
      if (!through.alive) return
      const gives = charges.flatMap((charge, index) => {
        const { units, bookedUs: leasedUs, spentUs } = taken.grants[index] as Grant // one per charge
        if (units === 0) return []
        const bookedUs = (charge.limit.algorithm === 'token_bucket' ? spentUs : undefined) ?? leasedUs ?? taken.nowUs
        return { ...charge, units, bookedUs, leasedUs, remote }
      })
      if (remote && !gives.every(({ limit }) => through.limits.includes(limit))) return // the rules were edited
      for (const admission of admissions) admission.units = 0
      const give = () => void promised(() => through.store.give(gives, undefined, once)).catch(() => {})
      give()
      if (random.next() < 0.3) this.#world.after(random.between(0, 100_000), give)
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
    if (this.#random.next() < 0.4) this.#ttlUs = this.#random.pick(TTLS_US)
    const limits = this.#newLimits()
    this.#limits = limits
    for (const node of this.#nodes) {
      this.#world.after(this.#random.between(0, SPREAD_US), () => {
        node.limits = limits
      })
    }
  }

  /**
   * Charged before spent: once all leases are back, the store has counted no less than what was admitted. In calm
   * weather nothing is lost, and a window, or a log that still has all entries, has counted exactly that.
   */
  async #settleAll(): Promise<void> {
    for (const node of this.#nodes) {
      if (node.alive) void node.store.close()
      node.alive = false
    }
    await this.#world.run(100_000)
    if (this.#generation > 0) return // an edit may forgive what a bucket cannot hold
    const { nowUs } = this.#world
    for (const limit of this.#limits) {
      const { algorithm, windowUs } = limit
      const exact = this.#plan.calm && (algorithm === 'fixed_window' || windowUs === LONGER_THAN_RUN_US)
      for (const owner of OWNERS) {
        const charged = limit.lease?.charged ?? limit
        const charge: Charge = { limit: charged, owner, detail: '', min: 1, max: 1, kind: 'enforce' }
        const counted = limit.capacity - (this.#central.peek([charge]).grants[0]?.remaining ?? 0)
        const admitted = this.#oracle.usedAt(limit, owner, nowUs)
        if (exact ? counted === admitted : counted >= admitted) continue
        this.#violations.push(`${limit.id} ${owner}: ${counted} counted, ${admitted} admitted`)
      }
    }
  }

  #newLimits(): Limit[] {
    const { pick } = this.#random
    const ttlUs = this.#ttlUs
    const shared = {
      fact: 'user',
      generation: this.#generation,
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
      { id: 'log', algorithm: 'sliding_window_log', units: pick([20, 100]), windowUs: pick([3e6, LONGER_THAN_RUN_US]) },
    ] as const
    const strict = { id: 'strict', fact: 'user', algorithm: 'token_bucket', units: 50, windowUs: 1e6 } as const
    const leased = limits.map((numbers) => ({ ...shared, ...numbers }))
    const compiled = [...leased, strict].map((numbers) => {
      return compileLimit({ ...numbers, onFail: this.#onFail.get(numbers.id) ?? 'closed' })
    })
    for (const limit of compiled) {
      widen(this.#widest, limit)
      widen(this.#widestParts, partOf(limit))
      this.#awaitLeases(limit)
    }
    return compiled
  }

  /**
   * When leases get shorter, those that are longer have to end before the bound is exact again. And a token bucket that
   * gets smaller along with another rate or other leases forgets what it cannot hold (docs/decisions/0003): what went
   * before is no part of any later bound.
   */
  #awaitLeases(limit: Limit): void {
    const { id, algorithm } = limit
    const before = this.#limits?.find((one) => one.id === id)
    if (before === undefined || algorithm.endsWith('_window')) return
    const ttlUs = before.lease?.ttlUs ?? 0
    const endsLeases = ttlUs > (limit.lease?.ttlUs ?? 0)
    if (forgets(before, limit)) this.#forgotUs.set(id, this.#world.nowUs + SPREAD_US)
    if (!endsLeases && !forgets(before, limit)) return
    const endUs = this.#world.nowUs + SPREAD_US + (endsLeases ? ttlUs : 0)
    this.#exactSinceUs.set(id, Math.max(endUs, this.#exactSinceUs.get(id) ?? 0))
  }
}

function forgets(before: Limit, after: Limit): boolean {
  if (after.algorithm !== 'token_bucket' || after.capacity >= before.capacity) return false
  return before.units * after.windowUs !== after.units * before.windowUs || before.lease?.ttlUs !== after.lease?.ttlUs
}

type Stamped = Taken & { readonly askedUs?: number }

/** Answers say when they were asked for: a check may have waited for what others ask before it asks itself. */
export function stamped(store: Store, nowUs: () => number): Store {
  return {
    async take(take) {
      const askedUs = nowUs()
      return { ...(await store.take(take)), askedUs }
    },
    peek: (charges) => store.peek(charges),
    give: (gives, opId, once) => store.give(gives, opId, once),
    reset: (bucket) => store.reset(bucket),
    close: () => store.close(),
  }
}

/** After an edit the wider limit may be used up before the other is in force: the oracle allows for either. */
function widen(widest: Map<string, Limit>, limit: Limit): void {
  const known = widest.get(limit.id) ?? limit
  const wider = limit.units / limit.windowUs > known.units / known.windowUs ? limit : known
  widest.set(limit.id, { ...wider, capacity: Math.max(limit.capacity, known.capacity) })
}

/** What a node may admit on its own. */
function partOf({ id, algorithm, units, capacity, windowUs }: Limit): Limit {
  const burst = Math.max(1, Math.floor(capacity / NODES))
  return compileLimit({ id, algorithm, units: Math.max(1, Math.floor(units / NODES)), windowUs, burst })
}
