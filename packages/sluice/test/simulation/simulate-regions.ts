// One simulated run of several regions that share limits, from a seed: nodes on a regional and a global store, under
// load and faults. Returns the list of violated guarantees.

import { ALGORITHMS, type Charge, compileLimit, type Grant, type Limit, type Store, type Taken } from 'sluice'
import { type RegionStore, regionStore, type Shares } from 'sluice/regions'
import { type Random, seededRandom } from 'sluice/testing'
import { guardStore } from '../../src/failure/guard-store.ts'
import { leaseStore } from '../../src/lease/lease-store.ts'
import { toPromise } from '../../src/maybe-promise.ts'
import { regionLimits } from '../../src/regions/region-limits.ts'
import { PoolTaken } from '../../src/regions/region-take.ts'
import { exactShares } from '../../src/regions/shares.ts'
import { ReferenceStore } from '../differential/reference-store.ts'
import { Network, type NetworkConditions } from './network.ts'
import { type Admission, Oracle } from './oracle.ts'
import { stamped } from './simulate.ts'
import { World } from './world.ts'

const OWNERS = ['a', 'b']
const RELIABLE: NetworkConditions = { lost: 0, broken: 0, slow: 0 }
const REGIONS = ['eu', 'us', 'ap'] as const
const REGIONAL_MS = 15
const GLOBAL_MS = 60
/**
 * Longest check. The store's time errs low by one period of the timer (3 and 2 ms here) for each step but the last: on
 * either side a check waits for the query of another, queries, waits again and queries again. The last wait may end
 * 4 ms late.
 */
const CHECK_MS_MAX = GLOBAL_MS + 3 * 3 + 4 + (REGIONAL_MS + 3 * 2 + 4)
/** Longest time until all nodes have new shares. */
const ROLLOUT_US = 300_000
/** Time after which no charged unit has an effect: two windows or a full refill, plus the longest lease. */
const FORGOTTEN_US = 2_000_000 + 600_000
const TTLS_US = [150_000, 600_000]
const RESHARED = ['token', 'log', 'fixed']
/** `nearMs` with which the pool pays before the home, and after it. */
const [NEAR, FAR] = [5, -1] as const
const BURST_EVERY_US = 700_000
const BURST_US = 120_000

type Region = {
  readonly name: string
  readonly store: ReferenceStore
  /** Its clock minus the global one. */
  readonly skewUs: number
}

type Node = {
  readonly region: Region
  readonly store: RegionStore
  readonly networks: { readonly home: Network; readonly global: Network }
  readonly offsetUs: number
  alive: boolean
}

/** Time at which the home paid: from a lease, or in the store. Attached to the charges, which wrappers copy. */
type Times = { leasedUs: number; storeUs: number }
type Tagged = Charge & { readonly times: Times }

export type RegionRun = { readonly violations: readonly string[]; readonly borrowed: number; readonly home: number }

export async function simulateRegions(seed: number): Promise<RegionRun> {
  return new RegionSimulation(seededRandom(seed)).run()
}

class RegionSimulation {
  readonly #random: Random
  readonly #world = new World()
  readonly #oracle = new Oracle()
  readonly #global = new ReferenceStore({ nowUs: () => this.#world.nowUs })
  readonly #regions: Region[]
  readonly #nodes: Node[] = []
  readonly #conditions: NetworkConditions
  readonly #seconds: number
  readonly #pauseUs: number
  readonly #limits: readonly Limit[]
  readonly #reweighs: boolean
  readonly #bursty: boolean
  readonly #nearMs: number
  #loaded = true
  readonly #violations: string[] = []
  #shares: Shares
  #nextShares: Shares | undefined
  /** Largest home share that was ever active: the excess that clock skew may cause in windows. */
  #homeShareMax = 0
  readonly #spent = { borrowed: 0, home: 0 }

  constructor(random: Random) {
    this.#random = random
    const unreliable = { lost: 0.02, broken: random.pick([0, 0.05]), slow: random.pick([0.05, 0.2]), doubled: 0.05 }
    this.#conditions = random.next() < 0.3 ? RELIABLE : unreliable
    const skewed = random.next() < 0.3
    const skewUs = () => (skewed ? random.between(-2_000_000, 2_000_000) : 0)
    this.#regions = REGIONS.map((name) => {
      const skew = skewUs()
      return { name, skewUs: skew, store: new ReferenceStore({ nowUs: () => this.#world.nowUs + skew }) }
    })
    this.#reweighs = random.next() < 0.35
    this.#seconds = random.pick([2.25, 3.75])
    this.#nearMs = random.pick([NEAR, FAR])
    this.#bursty = random.next() < 0.5
    this.#pauseUs = this.#bursty ? 2_000 : random.pick([6_000, 15_000])
    // With changing shares, only limits that are easily exceeded are worth checking.
    this.#limits = limitsOf(random).filter(({ id }) => !this.#reweighs || RESHARED.includes(id))
    this.#shares = this.#useShares(REGIONS.slice(0, random.between(2, 3)))
    for (const region of this.#regions) {
      if (this.#shares.weights[region.name] === undefined) continue
      for (let count = random.between(1, 2); count > 0; count -= 1) this.#addNode(region)
    }
  }

  async run(): Promise<RegionRun> {
    if (this.#reweighs) this.#reweigh()
    const seconds = this.#seconds + (this.#reweighs ? (2 * ROLLOUT_US + FORGOTTEN_US) / 1e6 : 0)
    if (this.#conditions !== RELIABLE)
      for (let faults = this.#random.between(0, 8); faults > 0; faults -= 1) this.#fault(seconds)
    await this.#world.run(seconds * 1e6)
    await this.#settleAll()
    const resent = this.#nodes.reduce((sum, { networks }) => sum + networks.home.resent + networks.global.resent, 0)
    if (resent > 0) this.#violations.push(`${resent} takes were sent again`)
    return { violations: [...this.#violations, ...this.#oracle.violations(this.#bounds())], ...this.#spent }
  }

  /** Random shares for these regions. */
  #useShares(names: readonly string[]): Shares {
    const { pick } = this.#random
    const [first, ...others] = names as [string, ...string[]]
    const most = pick([0.2, 0.6])
    const entries = others.map((name) => [name, (1 - most) / others.length] as const)
    const homeShare = pick([0, 0.1, 0.5, 1])
    this.#homeShareMax = Math.max(this.#homeShareMax, homeShare)
    return { weights: Object.fromEntries([[first, most], ...entries]), homeShare }
  }

  #addNode(region: Region): void {
    const world = this.#world
    const networks = {
      home: new Network(world, this.#random, this.#conditions),
      global: new Network(world, this.#random, this.#conditions),
    }
    const node = { region, networks, alive: true, offsetUs: this.#random.between(-5e6, 5e6) }
    const timers = world.timers(() => node.alive)
    const random = () => this.#random.next()
    const clock = { nowUs: () => world.nowUs + node.offsetUs }
    const guarded = guardStore(networks.home.to(region.store), { timers, random, deadlineMs: REGIONAL_MS })
    const home = leaseStore(
      stamped(guarded, () => world.nowUs),
      { timers, clock },
    )
    const store = regionStore({
      name: region.name,
      shares: this.#shares,
      nextShares: this.#nextShares,
      regional: this.#timed(home),
      global: guardStore(networks.global.to(this.#global), { timers, random, deadlineMs: GLOBAL_MS }),
      nearMs: this.#nearMs,
      clock,
      timers,
    })
    const added = Object.assign(node, { store })
    this.#nodes.push(added)
    this.#request(added)
  }

  /** Records when the home paid: leased units when the store was queried for the rest, if it was. */
  #timed(store: Store): Store {
    return {
      take: async (take) => {
        const taken = await store.take(take)
        const { times } = take.charges[0] as Tagged
        const { queriedUs } = taken as { queriedUs?: number }
        times.leasedUs = taken.source === 'lease' ? this.#world.nowUs : (queriedUs ?? this.#world.nowUs)
        times.storeUs = taken.nowUs
        return taken
      },
      peek: (charges) => store.peek(charges),
      give: (gives, opId, idempotencyKey) => store.give(gives, opId, idempotencyKey),
      reset: (bucket) => store.reset(bucket),
      close: () => store.close(),
    }
  }

  #request(node: Node): void {
    this.#world.after(this.#random.next() * 2 * this.#pauseUs + this.#burstGapUs(), () => {
      if (!node.alive || !this.#loaded) return
      void this.#check(node)
      this.#request(node)
    })
  }

  /** Pause between bursts, which hit all regions at the same time: leases idle and buckets refill. */
  #burstGapUs(): number {
    const withinUs = this.#world.nowUs % BURST_EVERY_US
    return this.#bursty && withinUs > BURST_US ? BURST_EVERY_US - withinUs : 0
  }

  async #check(node: Node): Promise<void> {
    const owner = this.#random.pick(OWNERS)
    const min = this.#random.pick([1, 1, 1, 2])
    const limits = this.#limits.filter(() => this.#random.next() < 0.35)
    if (limits.length === 0) return
    const times: Times = { leasedUs: 0, storeUs: 0 }
    const charges = limits.map((limit): Tagged => {
      return { limit, owner, detail: '', min, max: min, kind: 'enforce', times }
    })
    const sentUs = this.#world.nowUs
    const taken = await node.store.take({ charges })
    if (!node.alive) return
    const tookMs = (this.#world.nowUs - sentUs) / 1000
    if (tookMs > CHECK_MS_MAX) this.#violations.push(`a check took ${tookMs} ms`)
    if (!taken.granted) return
    const admissions = charges.map((charge, index) => {
      return this.#admit(node, charge, taken.grants[index] as Grant, taken, times)
    })
    if (this.#random.next() < 0.05) this.#giveBackLater(node, charges, taken, admissions)
  }

  #admit(node: Node, { limit, owner, min }: Charge, grant: Grant, { source }: Taken, times: Times): Admission {
    const { region, offsetUs } = node
    const bucket = limit.spread === undefined ? `${region.name} ${owner}` : owner
    if (grant instanceof PoolTaken) {
      this.#spent.borrowed += min
      return this.#oracle.admit(limit, bucket, min, grant.source === 'lease' ? grant.nowUs - offsetUs : grant.nowUs)
    }
    if (grant.bookedUs === undefined && source !== 'store') this.#violations.push('a closed rule admitted a request')
    this.#spent.home += min
    const atUs = grant.bookedUs === undefined ? times.storeUs - region.skewUs : times.leasedUs
    return this.#oracle.admit(limit, bucket, min, atUs)
  }

  #giveBackLater(node: Node, charges: readonly Charge[], taken: Taken, admissions: readonly Admission[]): void {
    this.#world.after(this.#random.between(0, 300_000), () => {
      if (!node.alive || !this.#loaded) return
      const gives = charges.flatMap((charge, index) => {
        const { units, bookedUs, sublimit } = taken.grants[index] as Grant // one per charge
        const { limit, owner, detail } = charge
        const give = { limit: sublimit ?? limit, owner, detail, units, bookedUs: bookedUs ?? taken.nowUs }
        return units === 0 ? [] : { ...give, leasedUs: bookedUs }
      })
      for (const admission of admissions) admission.units = 0
      void toPromise(() => node.store.give(gives)).catch(() => {})
    })
  }

  #fault(seconds: number): void {
    const kind = this.#random.pick(['crash', 'region', 'partition', 'cut off', 'global'])
    this.#world.after(this.#random.next() * seconds * 1e6, () => {
      const living = this.#nodes.filter(({ alive }) => alive)
      if (living.length === 0) return
      const node = this.#random.pick(living)
      const together = living.filter(({ region }) => region === node.region)
      if (kind === 'crash') this.#restart(node)
      if (kind === 'region') for (const one of together) this.#restart(one)
      if (kind === 'partition') this.#cut([node.networks.home])
      if (kind === 'cut off') this.#cut(together.map(({ networks }) => networks.global))
      if (kind === 'global') this.#cut(living.map(({ networks }) => networks.global))
    })
  }

  /** Replaces a node. Its leases are lost; messages in flight may still arrive. */
  #restart(node: Node): void {
    node.alive = false
    for (const network of Object.values(node.networks)) network.up = this.#random.next() < 0.5
    if (this.#isNamed(node.region)) this.#addNode(node.region)
  }

  #cut(networks: readonly Network[]): void {
    for (const network of networks) network.up = false
    this.#world.after(this.#random.between(10_000, 1_500_000), () => {
      for (const network of networks) network.up = true
    })
  }

  #isNamed({ name }: Region): boolean {
    return [this.#shares, this.#nextShares].some((shares) => shares?.weights[name] !== undefined)
  }

  /** As in docs/guides/regions.md: both shares on all nodes, a pause until no old unit counts, then the new shares. */
  #reweigh(): void {
    const next = this.#useShares(this.#random.pick([REGIONS, REGIONS.slice(0, 2), REGIONS.slice(1)]))
    this.#world.after(this.#random.between(500_000, 1_000_000), () => {
      this.#rollOut(this.#shares, next)
      this.#world.after(ROLLOUT_US + FORGOTTEN_US, () => this.#rollOut(next, undefined))
    })
  }

  /** Replaces nodes one by one; nodes of a region without a weight are removed. */
  #rollOut(shares: Shares, next: Shares | undefined): void {
    const before = this.#nodes.filter(({ alive }) => alive)
    this.#shares = shares
    this.#nextShares = next
    const isNew = (region: Region) => this.#isNamed(region) && !before.some((node) => node.region === region)
    for (const region of this.#regions.filter(isNew)) this.#addNode(region)
    for (const node of before) {
      this.#world.after(this.#random.between(0, ROLLOUT_US), () => {
        if (!node.alive) return
        void node.store.close()
        node.alive = false
        if (this.#isNamed(node.region)) this.#addNode(node.region)
      })
    }
  }

  /** Without faults nothing is lost: once all leases are returned, homes and pools have counted the units admitted. */
  async #settleAll(): Promise<void> {
    this.#loaded = false
    await this.#world.run(2 * GLOBAL_MS * 1000)
    for (const node of this.#nodes) if (node.alive) void node.store.close()
    await this.#world.run(100_000)
    if (this.#conditions !== RELIABLE || this.#reweighs || this.#isSkewed) return
    const shares = [exactShares(this.#shares, 'shares')]
    for (const limit of this.#limits) {
      if (limit.algorithm !== 'fixed_window' || limit.spread === undefined) continue
      for (const owner of OWNERS) {
        const used = (store: ReferenceStore, sublimit: Limit | undefined) => {
          if (sublimit === undefined) return 0
          const charge: Charge = { limit: sublimit, owner, detail: '', min: 1, max: 1, kind: 'enforce' }
          return sublimit.capacity - (store.peek([charge]).grants[0]?.remaining ?? 0)
        }
        const counts = this.#regions.map(({ name, store }) => {
          const { home, pool } = regionLimits(limit, shares, name)
          return { home: used(store, home), pool: used(this.#global, pool) }
        })
        const counted = counts.reduce((sum, { home }) => sum + home, counts[0]?.pool ?? 0)
        const admitted = this.#oracle.usedAt(limit, owner, this.#world.nowUs)
        if (counted !== admitted)
          this.#violations.push(`${limit.id} ${owner}: ${counted} counted, ${admitted} admitted`)
      }
    }
  }

  get #isSkewed(): boolean {
    return this.#regions.some(({ skewUs }) => skewUs !== 0)
  }

  /** With clock skew, windows of homes and pools are not aligned: they may admit Σ home_i more. */
  #bounds(): Map<string, Limit> {
    const skewed = this.#isSkewed
    return new Map(
      this.#limits.map((limit) => {
        const widened = skewed && limit.spread !== undefined && ALGORITHMS[limit.algorithm].windows > 0
        const more = widened ? Math.floor(this.#homeShareMax * limit.units) : 0
        return [limit.id, { ...limit, capacity: limit.capacity + more }]
      }),
    )
  }
}

function limitsOf({ pick }: Random): Limit[] {
  const shared = {
    fact: 'user',
    onFail: 'closed',
    lease: { ttlUs: pick(TTLS_US), maxShare: pick([0.1, 0.5]) },
  } as const
  const spread = { ...shared, spread: true } as const
  const numbers = [
    {
      ...spread,
      id: 'token',
      algorithm: 'token_bucket',
      units: pick([20, 60]),
      windowUs: 500_000,
      burst: pick([20, 40]),
    },
    { ...spread, id: 'fixed', algorithm: 'fixed_window', units: pick([20, 100]), windowUs: 1e6 },
    { ...spread, id: 'sliding', algorithm: 'sliding_window', units: pick([20, 100]), windowUs: 1e6 },
    { ...spread, id: 'log', algorithm: 'sliding_window_log', units: pick([20, 60]), windowUs: pick([1e6, 2e6]) },
    { ...spread, id: 'small', algorithm: 'fixed_window', units: 3, windowUs: 500_000 },
    { ...spread, id: 'strict', algorithm: 'token_bucket', units: 30, windowUs: 500_000, lease: undefined },
    { ...shared, id: 'regional', algorithm: 'token_bucket', units: 30, windowUs: 500_000 },
  ] as const
  return numbers.map(({ lease, ...rest }) => compileLimit({ ...rest, ...(lease && { lease }) }))
}
