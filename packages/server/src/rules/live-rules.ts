// Keeps the rules in force equal to those of their source. Rules that are wrong change nothing, and a source that
// cannot be asked changes nothing either: the last good rules stay, /readyz and metrics say so, and their age grows.

import { type Limiter, LimiterError, type RulesInput } from 'sluice'
import { Refreshing } from '../db/refreshing.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { mistakesIn } from './rule-file.ts'
import type { FoundRules, RuleSource, RuleWatch } from './rule-source.ts'
import type { RuleSnapshot } from './snapshot.ts'

export type LiveRulesParts = {
  readonly source: RuleSource
  /** Where the last good rules are kept; a file keeps them itself. */
  readonly snapshot: RuleSnapshot | undefined
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly log: Log
}

export class LiveRules {
  readonly source: RuleSource
  readonly #parts: LiveRulesParts
  /** The version that was last found, good or not. */
  #found: number | undefined
  #wrong = false
  #lost = false
  #confirmedMs: number = performance.now()
  readonly #refreshing: Refreshing = new Refreshing(() => this.#tryLoad())
  #watch: RuleWatch | undefined

  constructor(parts: LiveRulesParts) {
    this.source = parts.source
    this.#parts = parts
    parts.metrics.watchRules(() => ({
      version: parts.limiter.version,
      valid: !this.#wrong,
      ageSeconds: this.#ageMs() / 1000,
    }))
  }

  /** The first rules: those of the source or, while they cannot be had, the last good ones. Throws without either. */
  async start(): Promise<void> {
    try {
      await this.#load(true)
    } catch (error) {
      await this.#useSnapshot(error)
    }
    this.#watch = await this.source.watch(() => void this.refresh())
    this.#refreshing.poll()
  }

  /** Resolves once what the source held when this was called, or something newer, is in force. Never rejects. */
  refresh(): Promise<void> {
    return this.#refreshing.refresh()
  }

  /** Why the rules in force may not be those of the source. */
  trouble(): string | undefined {
    if (this.#wrong) return `rules: ${this.source.place} has wrong ones, the last good rules are in force`
    if (!this.#lost) return undefined
    const seconds = Math.round(this.#ageMs() / 1000)
    return `rules: ${this.source.place} cannot be asked, the rules in force are ${seconds} s old`
  }

  /** The source stays open. */
  async stop(): Promise<void> {
    const stopped = this.#refreshing.stop()
    await this.#watch?.stop()
    await stopped
  }

  /** Since the rules in force were last known to be those of the source. */
  #ageMs(): number {
    return performance.now() - this.#confirmedMs
  }

  async #tryLoad(): Promise<void> {
    try {
      await this.#load(false)
    } catch (error) {
      this.#failed(error)
    }
  }

  async #load(isFirst: boolean): Promise<void> {
    const { version, rules } = this.#parts.limiter
    const found = await this.source.read(this.#found, version === this.#found ? rules : undefined)
    if (found !== undefined) await this.#use(found, isFirst)
    if (this.#lost) this.#parts.log.info({ source: this.source.place }, 'the source of the rules answers again')
    this.#lost = false
    if (!this.#wrong) this.#confirmedMs = performance.now()
  }

  async #use(found: FoundRules, isFirst: boolean): Promise<void> {
    const { limiter, metrics, log, snapshot } = this.#parts
    this.#found = found.version
    const startedMs = performance.now()
    const prepared = await limiter.prepareRules(found.rules as RulesInput, found.version).catch(async (error) => {
      throw error instanceof LimiterError && found.errorOf ? await found.errorOf(error.faults) : error
    })
    prepared.enforce()
    this.#wrong = false
    if (found.ageMs !== undefined && !isFirst) {
      metrics.rulesArrived((found.ageMs + performance.now() - startedMs) / 1000)
    }
    const { version } = limiter
    if (!isFirst)
      log.info({ source: this.source.place, version, rules: limiter.rules.length }, 'new rules are in force')
    await snapshot?.write(version, prepared.rules).catch((error) => {
      log.warn({ err: error, file: snapshot.path }, 'the last good rules could not be kept on disk')
    })
  }

  #failed(error: unknown): void {
    const { log, limiter } = this.#parts
    const facts = { source: this.source.place, version: limiter.version }
    if (error instanceof LimiterError) {
      this.#wrong = true
      log.error({ ...facts, errors: mistakesIn(error) }, 'the rules are wrong: the last good rules stay in force')
    } else if (!this.#lost) {
      this.#lost = true
      const reason = error instanceof Error ? error.message : String(error)
      log.error({ ...facts, reason }, 'the source of the rules cannot be asked: the last good rules stay in force')
    }
  }

  #noRules(error: unknown): unknown {
    const { snapshot } = this.#parts
    if (error instanceof LimiterError || snapshot === undefined) return error
    const why = error instanceof Error ? error.message : String(error)
    return new Error(
      `the rules of ${this.source.place} cannot be read (${why}), nor a copy of them at ${snapshot.path}`,
    )
  }

  async #useSnapshot(error: unknown): Promise<void> {
    const { limiter, log, snapshot } = this.#parts
    const kept = await snapshot?.read()
    const prepared = kept && (await limiter.prepareRules(kept.rules as RulesInput, kept.version).catch(() => undefined))
    if (kept === undefined || prepared === undefined) throw this.#noRules(error)
    prepared.enforce()
    this.#confirmedMs = performance.now() - kept.ageMs
    this.#failed(error)
    log.warn({ file: snapshot?.path, version: kept.version }, 'started with the last good rules of this node')
  }
}
