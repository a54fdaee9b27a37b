// All nodes of the fleet with their health, and the figures of the last minutes. Every process reports itself; any of
// them answers for all. If the reports cannot be shared, each node still knows itself and the last reports it has read.

import { type Clock, wallClock } from 'sluice'
import { lacking, SILENT_MS } from '../compatibility/requirements.ts'
import type { Log } from '../log.ts'
import type { ApiHotKey } from './api-hot-key.ts'
import { FEATURES } from './features.ts'
import {
  type Counts,
  FigureRings,
  type Figures,
  MINUTE,
  mergeSteps,
  minus,
  READ_MS,
  REPORT_MS,
  RESOLUTIONS,
  shownPeriod,
} from './figures.ts'
import type { NodeReport, OpenAlert } from './node-report.ts'
import type { ReportStore, StoredReport } from './report-store.ts'

const SECOND_MS = 1000
/** Timers of a second fire some milliseconds early or late: the report of every second one is due. */
const TIMER_MS = 500

export type FleetNode = Omit<NodeReport, 'status' | 'figures' | 'alerts' | 'hot_keys' | 'understands'> & {
  readonly status: NodeReport['status'] | 'silent'
  readonly reported_ms_ago: number
  readonly checks_per_second: number
  readonly refused_per_second: number
  /** Features of the answering node that this one does not have. */
  readonly lacks: readonly string[]
}

export type FleetAlert = OpenAlert & { readonly node: string; readonly address: string }

export type FleetState = {
  readonly nodes: readonly FleetNode[]
  readonly figures: readonly Figures[]
  readonly alerts: readonly FleetAlert[]
  /** Reason that nodes may be missing from the list; undefined if it is complete. */
  readonly incomplete: string | undefined
}

export type FleetDeps = {
  readonly reports: ReportStore
  /** Cumulative counts of this process. */
  readonly counts: () => Counts
  /** Report of this process, without its figures. */
  readonly report: () => Omit<NodeReport, 'figures' | 'address' | 'understands'>
  readonly log: Log
  readonly clock?: Clock | undefined
}

export type Known = { readonly report: NodeReport; readonly ageMs: number }

export class Fleet {
  readonly #deps: FleetDeps
  readonly #clock: Clock
  readonly #rings = new FigureRings()
  #counts: Counts
  #address = ''
  #timer: NodeJS.Timeout | undefined
  #reportedMs = 0
  #others: readonly Known[] = []
  #failure: string | undefined
  #reading: Promise<void> | undefined
  #readMs = Number.NEGATIVE_INFINITY
  #stopped = false

  constructor(deps: FleetDeps) {
    this.#deps = deps
    this.#clock = deps.clock ?? wallClock
    this.#counts = deps.counts()
  }

  /** Begins to report, once the address is known. */
  start(address: string): void {
    this.#address = address
    this.#tickLater()
  }

  async state(): Promise<FleetState> {
    await this.#read()
    const all = [{ report: this.#own(), ageMs: 0 }, ...this.#others]
    return {
      nodes: all.map((known) => nodeOf(known, this.#nowMs())).sort(byName),
      figures: RESOLUTIONS.map(({ stepSeconds }, index) => ({
        stepSeconds,
        steps: mergeSteps(all.map(({ report }) => report.figures[index]?.steps ?? [])),
      })),
      alerts: all.flatMap(alertsOf),
      incomplete: this.#failure,
    }
  }

  /** Hot keys of each process. */
  async hotKeys(): Promise<readonly (readonly ApiHotKey[])[]> {
    await this.#read()
    const others = this.#others.filter(({ ageMs }) => ageMs <= SILENT_MS).map(({ report }) => report)
    return [this.#own(), ...others].map(({ hot_keys: keys = [] }) => keys)
  }

  async stop(): Promise<void> {
    this.#stopped = true
    clearTimeout(this.#timer)
    if (this.#address !== '') await this.#deps.reports.remove(this.#process).catch(() => {})
  }

  get #process(): string {
    return `${this.#deps.report().node} ${this.#address}`
  }

  #own(): NodeReport {
    return { ...this.#deps.report(), address: this.#address, figures: this.#rings.figures(), understands: FEATURES }
  }

  /** Runs at the start of each second, and counts the one before. */
  #tickLater(): void {
    const nowMs = this.#nowMs()
    this.#timer = setTimeout(() => this.#tick(), SECOND_MS - (nowMs % SECOND_MS)).unref()
  }

  #tick(): void {
    const counts = this.#deps.counts()
    this.#rings.add(minus(counts, this.#counts), Math.round(this.#nowMs() / SECOND_MS) - 1)
    this.#counts = counts
    if (this.#nowMs() - this.#reportedMs >= REPORT_MS - TIMER_MS) void this.#report()
    if (!this.#stopped) this.#tickLater()
  }

  async #report(): Promise<void> {
    this.#reportedMs = this.#nowMs()
    try {
      await this.#deps.reports.put(this.#process, JSON.stringify(this.#own()))
    } catch {
      // Readers see the failure. The outage of the database or Redis behind it is logged elsewhere.
    }
  }

  /** Callers at the same time share one read. */
  #read(): Promise<void> {
    if (performance.now() - this.#readMs < READ_MS) return Promise.resolve()
    this.#reading ??= this.#readReports().finally(() => {
      this.#readMs = performance.now()
      this.#reading = undefined
    })
    return this.#reading
  }

  async #readReports(): Promise<void> {
    try {
      const found = await this.#deps.reports.list()
      this.#others = found.filter(({ process }) => process !== this.#process).flatMap(knownOf)
      this.#failure = undefined
    } catch (error) {
      this.#others = this.#others.map(({ report, ageMs }) => ({ report, ageMs: ageMs + READ_MS }))
      this.#failure = error instanceof Error ? error.message : String(error)
    }
  }

  #nowMs(): number {
    return this.#clock.nowUs() / 1000
  }
}

/** Leaves out reports that another version wrote in another form. */
function knownOf({ text, ageMs }: StoredReport): Known[] {
  try {
    const report = JSON.parse(text) as NodeReport
    return Array.isArray(report.figures) && Array.isArray(report.alerts) ? [{ report, ageMs }] : []
  } catch {
    return []
  }
}

/** Rates are means of the last minute, the same as in the figures of the fleet: those of all nodes add up to it. */
export function nodeOf({ report, ageMs }: Known, nowMs: number): FleetNode {
  const { figures, alerts: _alerts, hot_keys: _hotKeys, understands = null, ...facts } = report
  const isSilent = ageMs > SILENT_MS
  const { from, to } = shownPeriod(MINUTE, nowMs)
  const recent = figures[0]?.steps.filter(({ at }) => at >= from && at < to) ?? []
  const steps = isSilent ? [] : recent
  const perSecond = (count: (step: Counts) => number) =>
    Math.round((steps.reduce((sum, step) => sum + count(step), 0) / MINUTE.shown) * 10_000) / 10_000
  return {
    ...facts,
    status: isSilent ? 'silent' : facts.status,
    reported_ms_ago: Math.round(ageMs),
    checks_per_second: perSecond(({ allowed, refused }) => allowed + refused),
    refused_per_second: perSecond(({ refused }) => refused),
    lacks: lacking(FEATURES, understands),
  }
}

function alertsOf({ report, ageMs }: Known): FleetAlert[] {
  const { node, address, reasons, alerts } = report
  const seconds = Math.round(ageMs / 1000)
  if (ageMs > SILENT_MS) return [{ node, address, type: 'node.silent', for_seconds: seconds, data: {} }]
  const degraded =
    reasons.length === 0 ? [] : [{ node, address, type: 'node.degraded', for_seconds: 0, data: { reasons } }]
  return [...degraded, ...alerts.map((alert) => ({ node, address, ...alert }))]
}

function byName(one: FleetNode, other: FleetNode): number {
  return one.node < other.node ? -1 : one.node > other.node ? 1 : one.address < other.address ? -1 : 1
}
