// Keeps the active rules in sync with their source. If the rules are invalid or the source is unreachable, the last
// good rules stay active, and /readyz and metrics report it.

import { type Limiter, LimiterError, type PreparedRules, type RulesInput } from 'sluice'
import { DatabaseTooNew } from '../db/migrate.ts'
import { Refresher } from '../db/refresher.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { errorLines, requirePrintable } from './rule-file.ts'
import type { FoundRules, RuleSource, RuleWatch } from './rule-source.ts'
import type { RuleSnapshot } from './snapshot.ts'

export type LiveRulesDeps = {
  readonly source: RuleSource
  /** Undefined for a file source, which needs no copy. */
  readonly snapshot: RuleSnapshot | undefined
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly log: Log
}

export class LiveRules {
  readonly source: RuleSource
  readonly #deps: LiveRulesDeps
  /** Version last read from the source, valid or not. */
  #readVersion: number | undefined
  /** First mistake in the rules that the source has now, without the value; undefined: they are valid. */
  #invalid: string | undefined
  #unreachable = false
  #confirmedMs: number = performance.now()
  readonly #refresher: Refresher = new Refresher(() => this.#tryLoad())
  #watch: RuleWatch | undefined

  constructor(deps: LiveRulesDeps) {
    this.source = deps.source
    this.#deps = deps
    deps.metrics.watchRules(() => ({
      version: deps.limiter.version,
      valid: this.#invalid === undefined,
      ageSeconds: this.#ageMs() / 1000,
    }))
  }

  /** Loads the first rules from the source, or else from the snapshot. Throws if neither has rules. */
  async start(): Promise<void> {
    try {
      await this.#load(true)
    } catch (error) {
      await this.#useSnapshot(error)
    }
    this.#watch = await this.source.watch(() => void this.refresh())
    this.#refresher.poll()
  }

  /** Resolves once rules at least as new as this call are active, if they are valid. Never rejects. */
  refresh(): Promise<void> {
    return this.#refresher.refresh()
  }

  /** Reason for /readyz why the active rules may differ from those of the source. */
  degradedReason(): string | undefined {
    if (this.#invalid !== undefined) {
      return `rules: ${this.source.location} has invalid rules; the last good rules stay active; ${this.#invalid}`
    }
    if (!this.#unreachable) return undefined
    const seconds = Math.round(this.#ageMs() / 1000)
    return `rules: ${this.source.location} is unreachable; the active rules are ${seconds} s old`
  }

  /** Stops watching the source, but does not close it. */
  async stop(): Promise<void> {
    const stopped = this.#refresher.stop()
    await this.#watch?.stop()
    await stopped
  }

  /** Time since the source last confirmed the active rules. */
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
    const { version, rules } = this.#deps.limiter
    const found = await this.source.read(this.#readVersion, version === this.#readVersion ? rules : undefined)
    if (found !== undefined) await this.#use(found, isFirst)
    if (this.#unreachable) this.#deps.log.event('rule_source_reachable', { source: this.source.location })
    this.#unreachable = false
    if (this.#invalid === undefined) this.#confirmedMs = performance.now()
  }

  async #use(found: FoundRules, isFirst: boolean): Promise<void> {
    const { limiter, metrics, log, snapshot } = this.#deps
    this.#readVersion = found.version
    const startedMs = performance.now()
    const prepared = await this.#prepared(found).catch(async (error) => {
      throw error instanceof LimiterError && found.errorOf ? await found.errorOf(error.fieldErrors) : error
    })
    prepared.enforce()
    metrics.rulesActive(limiter.rules)
    this.#invalid = undefined
    if (found.ageMs !== undefined && !isFirst) {
      metrics.rulesArrived((found.ageMs + performance.now() - startedMs) / 1000)
    }
    const { version } = limiter
    if (!isFirst) log.event('rules_applied', { source: this.source.location, version, rules: limiter.rules.length })
    await snapshot?.write(version, prepared.rules).catch((error) => {
      log.event('rules_snapshot_failed', { err: error, file: snapshot.path })
    })
  }

  /** Rules of the database were checked when they were written. */
  async #prepared({ rules, version }: FoundRules): Promise<PreparedRules> {
    const prepared = await this.#deps.limiter.prepareRules(rules as RulesInput, version)
    if (this.source.kind !== 'database') await requirePrintable(prepared.rules)
    return prepared
  }

  #failed(error: unknown): void {
    const { log, limiter } = this.#deps
    const facts = { source: this.source.location, version: limiter.version }
    if (error instanceof LimiterError) {
      const [first] = error.fieldErrors
      this.#invalid = first === undefined ? error.code : `${first.field}: ${first.fix}`
      log.event('rules_rejected', { ...facts, errors: errorLines(error) })
    } else if (!this.#unreachable) {
      this.#unreachable = true
      const reason = error instanceof Error ? error.message : String(error)
      log.event('rule_source_unreachable', { ...facts, reason })
    }
  }

  #startError(error: unknown): unknown {
    const { snapshot } = this.#deps
    if (error instanceof LimiterError || snapshot === undefined) return error
    const why = error instanceof Error ? error.message : String(error)
    const place = `${this.source.location} (${why})`
    return new Error(`cannot read the rules from ${place}, and there is no usable snapshot at ${snapshot.path}`)
  }

  async #useSnapshot(error: unknown): Promise<void> {
    if (error instanceof DatabaseTooNew) throw error // is not down: this node would miss more than its rules
    const { limiter, metrics, log, snapshot } = this.#deps
    const kept = await snapshot?.read()
    const prepared = kept && (await limiter.prepareRules(kept.rules as RulesInput, kept.version).catch(() => undefined))
    if (kept === undefined || prepared === undefined) throw this.#startError(error)
    prepared.enforce()
    metrics.rulesActive(limiter.rules)
    this.#confirmedMs = performance.now() - kept.ageMs
    this.#failed(error)
    log.event('rules_snapshot_used', { file: snapshot?.path, version: kept.version })
  }
}
