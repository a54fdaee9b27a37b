// Requests to all nodes of all regions, so many a second whether or not answers are late. Half of them meet the limit
// that regions share, which is asked for half as much again as it allows; the others meet limits of single users.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Region } from './bed.ts'
import { postJson } from './http-client.ts'
import type { Allowance } from './interval-check.ts'
import { ALL, Ledger, WatchedBucket } from './ledger.ts'
import type { ServiceNode } from './service-node.ts'

const TICK_MS = 10
const USERS = 60
/** A machine that falls behind is not buried under what it could not send in time. */
const IN_FLIGHT_MAX = 2000

/** Allowances of the two rules of rules.yaml. */
type Allowances = { readonly shared: Allowance; readonly own: Allowance }

type CheckAnswer = { readonly allowed: boolean; readonly source?: string }

/** Sends so many requests a second for as long as `work` takes, and tells what came of them. */
export async function underLoad(
  { regions }: { readonly regions: readonly Region[] },
  perSecond: number,
  work: (ledger: Ledger) => Promise<void>,
): Promise<Ledger> {
  const allowances = await allowancesOf(regions)
  const ledger = new Ledger(performance.now())
  const load = new Load(regions, ledger, perSecond, allowances)
  let isOver = false
  const loaded = load.run(() => isOver)
  try {
    await work(ledger)
  } finally {
    isOver = true
    await loaded
  }
  return ledger
}

/** As the first node tells them: the rules are the same on all. */
async function allowancesOf(regions: readonly Region[]): Promise<Allowances> {
  const known = await regions[0]?.nodes[0]?.allowances()
  const [shared, own] = [known?.get('shared'), known?.get('own')]
  if (shared === undefined || own === undefined) throw new Error('the rules of the fleet lack "shared" or "own"')
  return { shared, own }
}

class Load {
  readonly #regions: readonly Region[]
  readonly #ledger: Ledger
  readonly #perSecond: number
  readonly #tenants: readonly WatchedBucket[]
  readonly #users: ReadonlyMap<string, readonly WatchedBucket[]>
  #sent = 0
  #inFlight = 0

  constructor(regions: readonly Region[], ledger: Ledger, perSecond: number, { shared, own }: Allowances) {
    this.#regions = regions
    this.#ledger = ledger
    this.#perSecond = perSecond
    const tenants = Math.max(1, Math.round(perSecond / 2 / (1.5 * 1000 * shared.perMs)))
    this.#tenants = Array.from({ length: tenants }, () => new WatchedBucket(ALL, shared))
    this.#users = new Map(
      regions.map(({ name }) => [name, Array.from({ length: USERS }, () => new WatchedBucket(name, own))]),
    )
  }

  /** Until `isOver`; then waits for what is on its way. */
  async run(isOver: () => boolean): Promise<void> {
    let dueMs = performance.now()
    while (!isOver()) {
      const nowMs = performance.now()
      for (; dueMs <= nowMs; dueMs += 1000 / this.#perSecond) if (this.#inFlight < IN_FLIGHT_MAX) void this.#send()
      await sleep(TICK_MS)
    }
    while (this.#inFlight > 0) await sleep(TICK_MS)
  }

  /** Regions take turns, in each of them both kinds of requests do, and for each kind buckets and nodes. */
  async #send(): Promise<void> {
    const turn = this.#sent
    this.#sent += 1
    const region = ofTurn(this.#regions, turn)
    const inRegion = Math.floor(turn / this.#regions.length)
    const ofKind = Math.floor(inRegion / 2)
    const isShared = inRegion % 2 === 0
    const buckets = isShared ? this.#tenants : (this.#users.get(region.name) ?? [])
    const number = ofKind % buckets.length
    const subject = isShared
      ? { endpoint: '/shared', tenant: `tenant-${number}` }
      : { endpoint: '/own', client_id: `user-${number}` }
    await this.#ask(region, ofTurn(region.nodes, Math.floor(ofKind / buckets.length)), ofTurn(buckets, number), subject)
  }

  async #ask(region: Region, node: ServiceNode, bucket: WatchedBucket, subject: object): Promise<void> {
    const { name } = region
    const sentMs = performance.now()
    this.#inFlight += 1
    try {
      const { allowed, source } = (await postJson(node.checks, subject)) as CheckAnswer
      const answeredMs = performance.now()
      this.#ledger.answered(bucket, { region: name, sentMs, answeredMs, allowed, byPolicy: source === 'policy' })
    } catch {
      this.#ledger.counts(name).failed += 1
    } finally {
      this.#inFlight -= 1
    }
  }
}

function ofTurn<T>(all: readonly T[], turn: number): T {
  return all[turn % all.length] as T // there are some, always
}
