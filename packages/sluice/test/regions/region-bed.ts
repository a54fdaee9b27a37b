// Test bed of two regions and a global store, on three real Redis servers. Virtual time, for Redis and for nodes, so
// that a busy machine has no influence. The links to the global Redis can be cut.

import { Redis } from 'ioredis'
import { type Charge, compileLimit, type Limit, type LimitNumbers, memoryStore, type Store, type Taken } from 'sluice'
import { redisStore } from 'sluice/redis'
import { type RegionStore, regionStore, type Shares } from 'sluice/regions'
import {
  type FakeClock,
  type FaultProxy,
  fakeClock,
  type RedisProcess,
  startFaultProxy,
  startRedis,
} from 'sluice/testing'
import { leaseStore } from '../../src/lease/lease-store.ts'
import { toPromise } from '../../src/maybe-promise.ts'
import { type ManualTimers, manualTimers } from '../../src/testing/manual-timers.ts'
import { Oracle } from '../simulation/oracle.ts'

export type RegionName = 'eu' | 'us'
export type BedOptions = {
  readonly shares: Shares
  /** Whether the pool counts as near and pays before the home. Default: false. */
  readonly near?: boolean
  /** Offset of the clock of a region. */
  readonly skewMs?: Partial<Record<RegionName, number>>
}

export type Loaded = { readonly admitted: readonly number[]; readonly strictly: readonly number[] }

type Node = { readonly name: RegionName; readonly store: RegionStore; readonly pool: Store }

export const TURN_MS = 50
const NODES_PER_REGION = 2
const PATIENT = { leases: false, deadlineMs: 5000 } as const

export class RegionBed {
  readonly oracle: Oracle = new Oracle()
  readonly clock: FakeClock = fakeClock()
  readonly links: Readonly<Record<RegionName, FaultProxy>>
  readonly global: RedisProcess
  readonly #timers: ManualTimers = manualTimers()
  readonly #regional: Readonly<Record<RegionName, RedisProcess>>
  readonly #nodes: Node[] = []
  readonly #clients: Redis[] = []
  readonly #strict = memoryStore({ clock: this.clock })
  readonly #turns = new Map<Limit, number>()

  static async start(options: BedOptions): Promise<RegionBed> {
    const [eu, us, global] = await Promise.all([startRedis(), startRedis(), startRedis()])
    const links = { eu: await startFaultProxy(global.port), us: await startFaultProxy(global.port) }
    const bed = new RegionBed({ eu, us }, global, links)
    for (const name of ['eu', 'us'] as const) {
      for (let count = 0; count < NODES_PER_REGION; count += 1) await bed.#addNode(name, options)
    }
    return bed
  }

  private constructor(
    regional: Readonly<Record<RegionName, RedisProcess>>,
    global: RedisProcess,
    links: Readonly<Record<RegionName, FaultProxy>>,
  ) {
    this.#regional = regional
    this.global = global
    this.links = links
  }

  /** Sends one check through a node of the region. */
  async check(name: RegionName, limit: Limit): Promise<Taken> {
    const turn = (this.#turns.get(limit) ?? 0) + 1
    this.#turns.set(limit, turn)
    const nodes = this.#nodes.filter((node) => node.name === name)
    const { store } = nodes[turn % nodes.length] as Node // each region has nodes
    const charge: Charge = { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce' }
    const atUs = this.clock.nowUs()
    const taken = await store.take({ charges: [charge] })
    if (taken.granted && taken.source !== 'policy') this.oracle.admit(limit, 'alice', 1, atUs)
    return taken
  }

  /**
   * Loads each region with `pressure` times the limits. Returns the admissions by limit, and those of one strict store
   * with the same requests.
   */
  async load(
    limits: readonly Limit[],
    seconds: number,
    pressure: Partial<Record<RegionName, number>>,
  ): Promise<Loaded> {
    const admitted = limits.map(() => 0)
    const strictly = limits.map(() => 0)
    const owed = limits.map(() => ({ eu: 0, us: 0 }))
    for (let turn = 0; turn < (seconds * 1000) / TURN_MS; turn += 1) {
      const checks = limits.flatMap((limit, index) =>
        (['eu', 'us'] as const).flatMap((name) => {
          const due = owed[index] as Record<RegionName, number> // one per limit
          due[name] += ((pressure[name] ?? 0) * limit.units * TURN_MS * 1000) / limit.windowUs
          const times = Math.floor(due[name])
          due[name] -= times
          return Array.from({ length: times }, async () => {
            if (this.#strictAdmits(limit)) strictly[index] = (strictly[index] ?? 0) + 1
            if ((await this.check(name, limit)).granted) admitted[index] = (admitted[index] ?? 0) + 1
          })
        }),
      )
      await Promise.all(checks)
      await this.turn()
    }
    return { admitted, strictly }
  }

  #strictAdmits(limit: Limit): boolean {
    const strict = { ...limit, lease: undefined, spread: undefined }
    return this.#strict.take({ charges: [{ ...PROBE, limit: strict, kind: 'enforce' }] }).granted
  }

  /** Advances time when nothing is in flight: otherwise Redis would see time go backwards. */
  async turn(): Promise<void> {
    await this.#drain()
    this.clock.advanceMs(TURN_MS)
    this.#timers.advance(TURN_MS)
    await this.#drain()
  }

  /** Waits for all requests in flight: the reply to a later request on the same connection comes after theirs. */
  async #drain(): Promise<void> {
    const ofPool = ({ name, pool }: Node) =>
      this.isIsolated(name) ? [] : toPromise(() => pool.peek([PROBE])).catch(() => {})
    await Promise.all(this.#nodes.flatMap((node) => [node.store.peek([PROBE]), ofPool(node)]))
  }

  isIsolated(name: RegionName): boolean {
    return this.#nodes.some((node) => node.name === name && node.store.isIsolated)
  }

  async stop(): Promise<void> {
    for (const client of this.#clients) client.disconnect()
    await Promise.allSettled(this.#nodes.map(({ store }) => store.close()))
    await Promise.all(Object.values(this.links).map((link) => link.stop()))
    await Promise.all([this.global, ...Object.values(this.#regional)].map((redis) => redis.stop()))
  }

  async #addNode(name: RegionName, { shares, near, skewMs = {} }: BedOptions): Promise<void> {
    const { clock } = this
    const skewUs = (skewMs[name] ?? 0) * 1000
    const regionalClock = { nowUs: () => clock.nowUs() + skewUs }
    const client = (port: number) => {
      const own = new Redis(port, '127.0.0.1', { lazyConnect: true })
      this.#clients.push(own)
      return own
    }
    const home = redisStore(client(this.#regional[name].port), { ...PATIENT, clock: regionalClock })
    const pool = redisStore(client(this.links[name].port), { ...PATIENT, clock })
    const timers = this.#timers
    const nearMs = near ? 1 : -1
    const store = regionStore({
      name,
      shares,
      regional: leaseStore(home, { clock, timers }),
      global: pool,
      nearMs,
      clock,
      timers,
    })
    this.#nodes.push({ name, store, pool })
    await Promise.all([home.ready(), pool.ready()])
  }
}

const PROBE: Charge = {
  limit: compileLimit({ id: 'probe', algorithm: 'fixed_window', units: 1, windowUs: 1_000_000 }),
  owner: '',
  detail: '',
  min: 1,
  max: 1,
  kind: 'shadow',
}

export const ALGORITHMS = ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const

/** Limits of each algorithm, shared by regions. */
export function sharedLimits(units: number, windowUs: number): Limit[] {
  return ALGORITHMS.map((algorithm) => {
    const numbers: LimitNumbers = { id: algorithm, fact: 'user', onFail: 'closed', algorithm, units, windowUs }
    return compileLimit({ ...numbers, spread: true, lease: {} })
  })
}
