// One simulated run of a fleet, from a seed: nodes with leases and guards on one store, under load and faults. Returns
// the list of violated guarantees.

import { ALGORITHMS, type Charge, compileLimit, type Grant, type Limit, type Store, type Taken } from 'sluice'
import { type Random, seededRandom } from 'sluice/testing'
import type { Timers } from '../../src/clock.ts'
import { guardStore } from '../../src/failure/guard-store.ts'
import { leaseStore } from '../../src/lease/lease-store.ts'
import { toPromise } from '../../src/maybe-promise.ts'
import { ReferenceStore } from '../differential/reference-store.ts'
import { Network, type NetworkConditions } from './network.ts'
import { type Admission, Oracle } from './oracle.ts'
import { World } from './world.ts'

const OWNERS = ['a', 'b', 'c']
/** The `nodes` option: divisor of node shares. */
const NODES = 2
/** Longest time until all nodes have an edit. */
const ROLLOUT_US = 500_000
const DEADLINE_MS = 15
const BURST_EVERY_US = 1_700_000
const BURST_US = 300_000
const TTLS_US = [undefined, 300_000, 1_500_000]
const ON_FAIL: readonly OnFail[] = ['closed', 'closed', 'open', 'local']
/** Window of a log that no unit leaves before the run ends. */
const LONGER_THAN_RUN_US = 60e6
/** A node must not refuse for longer without asking the store. */
const REFUSAL_US = 200_000
/** A clock that is set back is noticed within this time, and smaller steps are not. */
const CLOCK_STEP_US = 50_000
const RELIABLE: NetworkConditions = { lost: 0, broken: 0, slow: 0 }

type Plan = {
  /** No faults and a reliable network. */
  readonly faultless: boolean
  readonly conditions: NetworkConditions
  readonly seconds: number
  /** The only faults are clock steps, whose effects other faults would hide. */
  readonly onlyClocks: boolean
  readonly bursty: boolean
  /** Mean time between two requests of a node. */
  readonly pauseUs: number
  /** Share of admitted requests that are refunded. */
  readonly refunded: number
}

type Node = {
  store: Store
  readonly network: Network
  limits: Limit[]
  alive: boolean
  offsetUs: number
  /** Time at which its clock was last set. */
  steppedUs: number
  waiting: number
  /** Units admitted from its node shares while the store was unreachable. */
  readonly local: Oracle
  /** Replies of the store that justify refusals, by limit and owner. */
  readonly shortages: Map<string, Shortage[]>
  /** Time of the last refund through this node, by limit and owner. */
  readonly refunds: Map<Limit, Map<string, number>>
}

/** The store was short of `units` when it was asked at this time. */
type Shortage = { readonly sentUs: number; readonly units: number }

type OnFail = Limit['onFail']

/** The central store as seen by a node, through its network. */
export type Connect = (network: Network, central: Store, timers: Timers) => Store

/** Other ways to reach the central store: `connect`. */
export async function simulate(seed: number, connect: Connect = direct): Promise<string[]> {
  return new Simulation(seededRandom(seed), connect).run()
}

function direct(network: Network, central: Store): Store {
  return network.to(central)
}

class Simulation {
  readonly #random: Random
  readonly #connect: Connect
  readonly #world = new World()
  readonly #oracle = new Oracle()
  readonly #central = new ReferenceStore({ nowUs: () => this.#world.nowUs })
  readonly #violations: string[] = []
  readonly #widest = new Map<string, Limit>()
  /** Time from which the bound is exact again, after an edit that shortened leases. */
  readonly #exactSinceUs = new Map<string, number>()
  /** Time from which node shares are exact again, after an edit that makes them drop units: see #awaitLeases. */
  readonly #droppedUs = new Map<string, number>()
  readonly #widestShares = new Map<string, Limit>()
  readonly #plan: Plan
  readonly #nodes: Node[] = []
  #limits: Limit[]
  #generation = 0
  #gives = 0
  /** By limit id. */
  readonly #onFail = new Map<string, OnFail>()
  #ttlUs: number | undefined
  #loaded = true

  constructor(random: Random, connect: Connect) {
    this.#random = random
    this.#connect = connect
    const faultless = random.next() < 0.3
    const unreliable = {
      lost: random.pick([0, 0.02, 0.1]),
      broken: random.pick([0, 0.05]),
      slow: random.pick([0, 0.05, 0.2]),
    }
    const conditions = faultless ? RELIABLE : unreliable
    const onlyClocks = random.next() < 0.25
    this.#plan = {
      faultless,
      onlyClocks,
      bursty: onlyClocks || random.next() < 0.5,
      conditions,
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
    const { seconds, faultless } = this.#plan
    if (!faultless) for (let faults = this.#random.between(0, 12); faults > 0; faults -= 1) this.#fault(seconds)
    await this.#world.run(seconds * 1e6)
    this.#loaded = false
    await this.#world.run(100_000)
    await this.#settleAll()
    const waiting = this.#nodes.reduce((sum, node) => sum + (node.alive ? node.waiting : 0), 0)
    if (waiting > 0) this.#violations.push(`${waiting} checks were never answered`)
    const resent = this.#nodes.reduce((sum, { network }) => sum + network.resent, 0)
    if (resent > 0) this.#violations.push(`${resent} takes were sent again`)
    const globally = this.#oracle.violations(this.#widest, this.#exactSinceUs)
    const locally = this.#nodes.flatMap(({ local }) => local.violations(this.#widestShares, this.#droppedUs))
    return [...this.#violations, ...globally, ...locally.map((line) => `node share: ${line}`)]
  }

  #addNode(): void {
    const world = this.#world
    const network = new Network(world, this.#random, this.#plan.conditions)
    const node: Node = {
      network,
      limits: this.#limits,
      alive: true,
      waiting: 0,
      steppedUs: 0,
      local: new Oracle(),
      shortages: new Map(),
      refunds: new Map(),
      offsetUs: this.#random.between(-5_000_000, 5_000_000),
      store: undefined as unknown as Store, // set below: its clock and timers need the node
    }
    const timers = world.timers(() => node.alive)
    const random = () => this.#random.next()
    const clock = { nowUs: () => world.nowUs }
    const options = { timers, random, clock, deadlineMs: DEADLINE_MS, nodes: NODES }
    const guarded = guardStore(this.#connect(network, this.#central, timers), options)
    const recorded = stamped(guarded, clock.nowUs, (charges, taken) => recordShortages(node, charges, taken))
    node.store = leaseStore(recorded, {
      timers,
      clock: { nowUs: () => world.nowUs + node.offsetUs },
    })
    this.#nodes.push(node)
    this.#request(node)
  }

  /** Sends requests for as long as the node lives. */
  #request(node: Node): void {
    this.#world.after(this.#random.next() * 2 * this.#plan.pauseUs + this.#burstGapUs(), () => {
      if (!node.alive || !this.#loaded) return
      void this.#check(node)
      this.#request(node)
    })
  }

  /** Pause between bursts, which hit all nodes at the same time: leases idle and buckets refill. */
  #burstGapUs(): number {
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
    this.#checkPolicy(charges, taken)
    this.#checkCachedRefusal(node, charges, taken)
    if (!taken.granted) return
    const admissions = this.#admissions(node, charges, taken, sentUs)
    if (this.#random.next() < this.#plan.refunded) this.#giveBackLater(node, charges, taken, admissions)
  }

  /** Without the store, closed rules admit nothing beyond leases, and open rules refuse nothing. */
  #checkPolicy(charges: readonly Charge[], { granted, grants, source }: Taken): void {
    if (source !== 'policy' && source !== 'local') return
    const notLeased = charges.filter((_, index) => grants[index]?.bookedUs === undefined)
    const closed = notLeased.some(({ limit }) => limit.onFail === 'closed')
    if (granted && closed) this.#violations.push('a closed rule admitted a request')
    if (!granted && !closed && source === 'policy') this.#violations.push('open rules refused a request')
  }

  /**
   * Refusals without a round trip: never by a strict limit, and only if the store was short of at most as many units
   * when it was last asked, within 200 ms and after all refunds through this node.
   */
  #checkCachedRefusal(node: Node, charges: readonly Charge[], { granted, grants, source }: Taken): void {
    if (granted || source !== 'lease' || this.#world.nowUs <= node.steppedUs + CLOCK_STEP_US) return
    const since = this.#world.nowUs - REFUSAL_US - CLOCK_STEP_US
    for (const [index, { limit, owner, min }] of charges.entries()) {
      if (grants[index]?.short !== 'now') continue
      const refundedUs = node.refunds.get(limit)?.get(owner) ?? 0
      const known = node.shortages.get(`${limit.id} ${owner}`) ?? []
      const isKnown = known.some(({ sentUs, units }) => units <= min && sentUs >= Math.max(since, refundedUs))
      if (limit.id === 'strict' || !isKnown)
        this.#violations.push(`${limit.id} ${owner}: refused ${min} without asking`)
    }
  }

  /**
   * Records when each unit was spent. Units granted by the store: at its booking time. Units of a lease: now, or when
   * they were set aside, which is when the store was queried for the rest, but not before they were booked. Units
   * admitted without the store count only against the node share.
   */
  #admissions(node: Node, charges: readonly Charge[], taken: Taken, sentUs: number): Admission[] {
    const { nowUs } = this.#world
    const { queriedUs } = taken as Stamped
    return charges.flatMap(({ limit, owner, min }, index) => {
      const { bookedUs } = taken.grants[index] as Grant // one per charge
      if (bookedUs !== undefined) {
        const spentUs = taken.source === 'lease' ? nowUs : Math.max(queriedUs ?? sentUs, bookedUs)
        return this.#oracle.admit(limit, owner, min, spentUs)
      }
      if (taken.source === 'store') return this.#oracle.admit(limit, owner, min, taken.nowUs)
      if (limit.onFail === 'local') node.local.admit(limit, owner, min, nowUs)
      return []
    })
  }

  /** Refunds through the node that admitted the request, or by receipt through another one; sometimes twice. */
  #giveBackLater(node: Node, charges: readonly Charge[], taken: Taken, admissions: readonly Admission[]): void {
    this.#gives += 1
    const random = seededRandom(this.#gives) // separate, so that refunds do not change the rest of a run
    const through = random.next() < 0.5 ? node : random.pick(this.#nodes)
    const idempotencyKey = { id: `give ${this.#gives}`, ttlUs: 3_600e6 }
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
      const refunded = () => {
        for (const { limit, owner } of gives) {
          const byOwner = through.refunds.get(limit) ?? new Map<string, number>()
          through.refunds.set(limit, byOwner.set(owner, this.#world.nowUs))
        }
      }
      const give = () =>
        void toPromise(() => through.store.give(gives, undefined, idempotencyKey)).then(refunded, refunded)
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
        node.network.up = this.#random.next() < 0.5 // messages in flight may still arrive
        this.#addNode()
      }
      if (kind === 'partition') {
        node.network.up = false
        this.#world.after(this.#random.between(10_000, 3_000_000), () => {
          node.network.up = true
        })
      }
      const jumps = this.#plan.onlyClocks ? [-3_600e6] : [-3_600e6, -2e6, -30_000, 30_000, 2e6]
      if (kind === 'clock') {
        node.offsetUs += this.#random.pick(jumps)
        node.steppedUs = this.#world.nowUs
      }
      if (kind === 'join') this.#addNode()
      if (kind === 'edit') this.#edit()
    })
  }

  /** Changes the limits; each node gets the edit at another time. */
  #edit(): void {
    this.#generation += 1
    if (this.#random.next() < 0.4) this.#ttlUs = this.#random.pick(TTLS_US)
    const limits = this.#newLimits()
    this.#limits = limits
    for (const node of this.#nodes) {
      this.#world.after(this.#random.between(0, ROLLOUT_US), () => {
        node.limits = limits
      })
    }
  }

  /**
   * Units are charged before they are spent: once all leases are returned, the store has counted at least the units
   * admitted. Without faults nothing is lost, and a window, or a log that still has all entries, has counted exactly
   * those.
   */
  async #settleAll(): Promise<void> {
    for (const node of this.#nodes) {
      if (node.alive) void node.store.close()
      node.alive = false
    }
    await this.#world.run(100_000)
    if (this.#generation > 0) return // an edit drops units that do not fit into the new bucket
    const { nowUs } = this.#world
    for (const limit of this.#limits) {
      const { algorithm, windowUs } = limit
      const exact = this.#plan.faultless && (algorithm === 'fixed_window' || windowUs === LONGER_THAN_RUN_US)
      for (const owner of OWNERS) {
        const storeLimit = limit.lease?.storeLimit ?? limit
        const charge: Charge = { limit: storeLimit, owner, detail: '', min: 1, max: 1, kind: 'enforce' }
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
      widen(this.#widestShares, nodeShareOf(limit))
      this.#awaitLeases(limit)
    }
    return compiled
  }

  /**
   * Records from when the bound is exact again after an edit. Longer leases of the old limit have to end first. A token
   * bucket that shrinks while its rate or lease TTL changes drops units that do not fit (docs/decisions/0003), so
   * earlier units are not part of later bounds.
   */
  #awaitLeases(limit: Limit): void {
    const { id, algorithm } = limit
    const before = this.#limits?.find((one) => one.id === id)
    if (before === undefined || ALGORITHMS[algorithm].windows > 0) return
    const ttlUs = before.lease?.ttlUs ?? 0
    const endsLeases = ttlUs > (limit.lease?.ttlUs ?? 0)
    if (dropsUnits(before, limit)) this.#droppedUs.set(id, this.#world.nowUs + ROLLOUT_US)
    if (!endsLeases && !dropsUnits(before, limit)) return
    const endUs = this.#world.nowUs + ROLLOUT_US + (endsLeases ? ttlUs : 0)
    this.#exactSinceUs.set(id, Math.max(endUs, this.#exactSinceUs.get(id) ?? 0))
  }
}

function dropsUnits(before: Limit, after: Limit): boolean {
  if (after.algorithm !== 'token_bucket' || after.capacity >= before.capacity) return false
  return before.units * after.windowUs !== after.units * before.windowUs || before.lease?.ttlUs !== after.lease?.ttlUs
}

/** Keeps what the store reported as short in the last second. */
function recordShortages({ shortages }: Node, charges: readonly Charge[], taken: Stamped): void {
  const { queriedUs: sentUs = 0, grants, source } = taken
  if (source !== 'store') return
  for (const [index, { limit, owner, min }] of charges.entries()) {
    const { short, remaining } = grants[index] as Grant // one per charge
    if (short !== 'now' && remaining > 0) continue
    const name = `${limit.id} ${owner}`
    const recent = (shortages.get(name) ?? []).filter((one) => one.sentUs > sentUs - 1e6)
    shortages.set(name, [...recent, { sentUs, units: short === 'now' ? min : 1 }])
  }
}

type Stamped = Taken & { readonly queriedUs?: number }

/** Adds the query time to replies: a check may have waited for the query of another one before its own. */
export function stamped(
  store: Store,
  nowUs: () => number,
  onReply: (charges: readonly Charge[], taken: Taken) => void = () => {},
): Store {
  return {
    async take(take) {
      const queriedUs = nowUs()
      const taken = { ...(await store.take(take)), queriedUs }
      onReply(take.charges, taken)
      return taken
    },
    peek: (charges) => store.peek(charges),
    give: (gives, opId, idempotencyKey) => store.give(gives, opId, idempotencyKey),
    reset: (bucket) => store.reset(bucket),
    close: () => store.close(),
  }
}

/** Keeps the larger of two limits: during an edit, nodes apply either of them. */
function widen(widest: Map<string, Limit>, limit: Limit): void {
  const known = widest.get(limit.id) ?? limit
  const wider = limit.units / limit.windowUs > known.units / known.windowUs ? limit : known
  widest.set(limit.id, { ...wider, capacity: Math.max(limit.capacity, known.capacity) })
}

/** Node share of a limit. */
function nodeShareOf({ id, algorithm, units, capacity, windowUs }: Limit): Limit {
  const burst = Math.max(1, Math.floor(capacity / NODES))
  return compileLimit({ id, algorithm, units: Math.max(1, Math.floor(units / NODES)), windowUs, burst })
}
