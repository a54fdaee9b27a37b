// Open-loop load on all nodes of all regions at a fixed rate, independent of response times. Half of the requests use
// the limit that regions share, at 1.5 times its rate; the others use limits per user.

import { setTimeout as sleep } from 'node:timers/promises'
import { postJson } from './http-client.ts'
import { ALL, Ledger, WatchedBucket } from './ledger.ts'
import { allowanceOf } from './rules.ts'
import type { ServiceNode } from './service-node.ts'
import type { Region } from './testbed.ts'

const TICK_MS = 10
const USERS = 60
/** Beyond this, requests are skipped, because the machine is too slow for the rate. */
const IN_FLIGHT_MAX = 2000

type CheckAnswer = { readonly allowed: boolean; readonly source?: string }

/** Sends load while `work` runs, and returns its ledger. */
export async function underLoad(
  { regions }: { readonly regions: readonly Region[] },
  perSecond: number,
  work: (ledger: Ledger) => Promise<void>,
): Promise<Ledger> {
  const ledger = new Ledger(performance.now())
  const load = new Load(regions, ledger, perSecond)
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

class Load {
  readonly #regions: readonly Region[]
  readonly #ledger: Ledger
  readonly #perSecond: number
  readonly #tenants: readonly WatchedBucket[]
  readonly #users: ReadonlyMap<string, readonly WatchedBucket[]>
  #sent = 0
  #inFlight = 0

  constructor(regions: readonly Region[], ledger: Ledger, perSecond: number) {
    const [shared, own] = [allowanceOf('shared'), allowanceOf('own')]
    this.#regions = regions
    this.#ledger = ledger
    this.#perSecond = perSecond
    const tenants = Math.max(1, Math.round(perSecond / 2 / (1.5 * 1000 * shared.perMs)))
    this.#tenants = Array.from({ length: tenants }, () => new WatchedBucket(ALL, shared))
    this.#users = new Map(
      regions.map(({ name }) => [name, Array.from({ length: USERS }, () => new WatchedBucket(name, own))]),
    )
  }

  /** Sends until `isOver`, then waits for requests in flight. */
  async run(isOver: () => boolean): Promise<void> {
    let dueMs = performance.now()
    while (!isOver()) {
      const nowMs = performance.now()
      for (; dueMs <= nowMs; dueMs += 1000 / this.#perSecond) if (this.#inFlight < IN_FLIGHT_MAX) void this.#send()
      await sleep(TICK_MS)
    }
    while (this.#inFlight > 0) await sleep(TICK_MS)
  }

  /** Alternates between regions, then between shared and per-user requests, then between buckets and nodes. */
  async #send(): Promise<void> {
    const turn = this.#sent
    this.#sent += 1
    const region = roundRobin(this.#regions, turn)
    const inRegion = Math.floor(turn / this.#regions.length)
    const ofKind = Math.floor(inRegion / 2)
    const isShared = inRegion % 2 === 0
    const buckets = isShared ? this.#tenants : (this.#users.get(region.name) ?? [])
    const number = ofKind % buckets.length
    const subject = isShared
      ? { endpoint: '/shared', tenant: `tenant-${number}` }
      : { endpoint: '/own', client_id: `user-${number}` }
    await this.#check(
      region,
      roundRobin(region.nodes, Math.floor(ofKind / buckets.length)),
      roundRobin(buckets, number),
      subject,
    )
  }

  async #check(region: Region, node: ServiceNode, bucket: WatchedBucket, subject: object): Promise<void> {
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

function roundRobin<T>(items: readonly T[], turn: number): T {
  return items[turn % items.length] as T // never empty
}
