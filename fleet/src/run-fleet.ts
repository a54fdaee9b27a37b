// One run of a fleet: load, a live table, a primary killed half-way, and a report on the guarantees.

import { setTimeout as sleep } from 'node:timers/promises'
import { checkGuarantees, type Guarantee, type Kill, RECOVERY_SECONDS_MAX } from './guarantees.ts'
import type { Ledger } from './ledger.ts'
import { underLoad } from './load.ts'
import type { FleetOptions } from './options.ts'
import { LiveTable, type RegionView } from './table.ts'
import type { Region, Testbed } from './testbed.ts'

const DRAW_MS = 1000
/** Interval if standard output is not a terminal. */
const DRAW_MS_LOGGED = 10_000
/** Slots count as recovered after this long without a decision by `on_fail`. */
const QUIET_MS = 1500

export async function runFleet(testbed: Testbed, options: FleetOptions, end: AbortSignal): Promise<Guarantee[]> {
  let kill: Kill | undefined
  const ledger = await underLoad(testbed, options.rate, async (live) => {
    const run = new Run(testbed, live, options.seconds)
    await run.watch(end)
    kill = run.kill
  })
  return checkGuarantees(ledger, testbed.regions, kill)
}

class Run {
  kill: Kill | undefined
  readonly #testbed: Testbed
  readonly #ledger: Ledger
  readonly #startedMs = performance.now()
  readonly #seconds: number | undefined
  readonly #table: LiveTable

  constructor(testbed: Testbed, ledger: Ledger, seconds: number | undefined) {
    this.#testbed = testbed
    this.#ledger = ledger
    this.#seconds = seconds
    this.#table = new LiveTable(ledger, process.stdout, this.#startedMs)
  }

  /** Also waits until the slots of a killed primary have recovered. */
  get #isOver(): boolean {
    const seconds = this.#seconds
    const nowMs = performance.now()
    return seconds !== undefined && nowMs - this.#startedMs >= seconds * 1000 && this.#hasRecovered(nowMs)
  }

  async watch(end: AbortSignal): Promise<void> {
    const drawMs = process.stdout.isTTY ? DRAW_MS : DRAW_MS_LOGGED
    let drawnMs = this.#startedMs
    while (!this.#isOver && !end.aborted) {
      await sleep(100, undefined, { signal: end }).catch(() => {})
      const nowMs = performance.now()
      if (this.kill === undefined && this.#isHalfWay(nowMs)) await this.#killPrimary(nowMs)
      if (nowMs - drawnMs < drawMs) continue
      drawnMs = nowMs
      await this.#draw()
    }
    if (!end.aborted && performance.now() - drawnMs > DRAW_MS) await this.#draw()
  }

  async #draw(): Promise<void> {
    const views = await Promise.all(this.#testbed.regions.map(viewOf))
    const nowMs = performance.now()
    const ends = this.#seconds === undefined ? 'Ctrl-C to stop' : `of ${this.#seconds} s`
    this.#table.draw(views, `after ${Math.round((nowMs - this.#startedMs) / 1000)} s, ${ends}`, nowMs)
  }

  #isHalfWay(nowMs: number): boolean {
    return this.#seconds !== undefined && nowMs - this.#startedMs >= this.#seconds * 500
  }

  /** Kills the first primary of the first region; its replica takes over. */
  async #killPrimary(atMs: number): Promise<void> {
    const [region] = this.#testbed.regions
    if (region === undefined) return
    this.kill = { region: region.name, atMs }
    await region.cluster.nodes.find(({ replicates }) => replicates === undefined)?.stop()
  }

  #hasRecovered(nowMs: number): boolean {
    if (this.kill === undefined) return true
    const { lastPolicyMs } = this.#ledger.counts(this.kill.region)
    const sinceKillMs = nowMs - this.kill.atMs
    return sinceKillMs > RECOVERY_SECONDS_MAX * 1000 || nowMs - Math.max(lastPolicyMs, this.kill.atMs) > QUIET_MS
  }
}

async function viewOf({ name, nodes }: Region): Promise<RegionView> {
  const healths = await Promise.all(nodes.map((node) => node.health()))
  const borrowed = await Promise.all(nodes.map((node) => node.borrowedUnits()))
  const ready = healths.filter(({ status }) => status === 'ready').length
  const reasons = [...new Set(healths.flatMap(({ status, reasons: own }) => (status === 'gone' ? ['gone'] : own)))]
  const health = [`${ready}/${nodes.length} ready`, ...reasons].join('; ')
  return { name, health, borrowedUnits: borrowed.reduce((sum, units) => sum + units, 0) }
}
