// Demo traffic: creates rules, sends requests for them through the engine of this process, then removes the rules. The
// rules are the only state, and all nodes see it: the demo runs while they exist and have not expired.

import { type Clock, type Limiter, wallClock } from 'sluice'
import type { Check } from '../checks/check-controller.ts'
import type { Log } from '../log.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import type { LiveRules } from '../rules/live-rules.ts'
import type { Author, Edit, RuleStore } from '../rules/rule-store.ts'
import type { WritePathName } from '../rules/write-paths.ts'
import { DEMO_RULE_IDS, DEMO_SAMPLES, demoRequest, demoRules } from './demo-requests.ts'

const TICK_MS = 100
/** 200 requests a second. */
const REQUESTS_PER_TICK = 20
/** Rules outlive the traffic by this long, so that its last requests still match. */
const GRACE_MS = 5000
const REMOVE_RETRY_MS = 5000
const CLEANER: Author = { actor: 'sluice', reason: 'the demo traffic ended' }

export type DemoDeps = {
  readonly limiter: Limiter
  readonly live: LiveRules
  readonly check: Check
  readonly log: Log
  readonly clock?: Clock | undefined
}

export type DemoState = { readonly running: boolean; readonly ends_at: string | null }

export class DemoTraffic {
  readonly #deps: DemoDeps
  readonly #clock: Clock
  #timer: NodeJS.Timeout | undefined
  #running: { readonly store: RuleStore; readonly author: Author } | undefined
  #sent = 0

  constructor(deps: DemoDeps) {
    this.#deps = deps
    this.#clock = deps.clock ?? wallClock
  }

  state(): DemoState {
    const expiresAt = this.#expiresAt()
    const endsMs = expiresAt === undefined ? 0 : Date.parse(expiresAt) - GRACE_MS
    const running = endsMs > this.#nowMs()
    return { running, ends_at: running ? new Date(endsMs).toISOString() : null }
  }

  /** Creates the rules and starts. While it runs, extends it. Throws if other rules would be charged for everyone. */
  async start(store: RuleStore, seconds: number, author: Author): Promise<DemoState> {
    await this.#requireHarmless()
    const endsMs = this.#nowMs() + seconds * 1000
    const { limiter, log } = this.#deps
    const expiresAt = new Date(endsMs + GRACE_MS).toISOString()
    const { rules } = await limiter.prepareRules(demoRules(expiresAt))
    await this.#edit(store, author, 'demo.start', async () => rules)
    this.#running = { store, author }
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#tick(), TICK_MS)
    log.event('demo_started', { seconds, by: author.actor })
    return this.state()
  }

  /** Ends the demo, wherever it runs, and removes its rules. Throws while rule changes are frozen or need approval. */
  async stop(store: RuleStore, author: Author): Promise<void> {
    await this.#edit(store, author, 'demo.stop', async () => [])
    clearTimeout(this.#timer)
    this.#running = undefined
  }

  /** Removes the rules of the demo once they have expired. Retries during a freeze or an outage of the database. */
  removeExpired(store: RuleStore): void {
    const expiresAt = this.#expiresAt()
    if (expiresAt === undefined || this.#running !== undefined) return
    const waitMs = Date.parse(expiresAt) - this.#nowMs()
    const again = () => this.removeExpired(store)
    clearTimeout(this.#timer)
    if (waitMs > 0) this.#timer = setTimeout(again, waitMs)
    else void this.#clean(store).catch(() => (this.#timer = setTimeout(again, REMOVE_RETRY_MS)))
  }

  /** Ends a demo of this process. Rules that cannot be removed expire. */
  async close(): Promise<void> {
    const running = this.#running
    if (running !== undefined) await this.stop(running.store, running.author).catch(() => {})
    clearTimeout(this.#timer)
  }

  #tick(): void {
    if (!this.state().running) {
      this.#end()
      return
    }
    for (let sent = 0; sent < REQUESTS_PER_TICK; sent++) {
      this.#sent += 1
      void Promise.resolve(this.#deps.check(demoRequest(this.#sent))).catch(() => {}) // counted and logged by the check
    }
    this.#timer = setTimeout(() => this.#tick(), TICK_MS)
  }

  #end(): void {
    const running = this.#running
    this.#running = undefined
    if (running !== undefined) this.removeExpired(running.store)
  }

  /** Keeps the rules if another node has extended the demo. */
  async #clean(store: RuleStore): Promise<void> {
    const { limiter } = this.#deps
    await this.#edit(store, CLEANER, 'demo.clean', async (present) => {
      const isOver = present.every((rule) => Date.parse(String(rule.expires_at)) <= this.#nowMs())
      return isOver ? [] : (await limiter.prepareRules(present)).rules
    })
  }

  async #edit(store: RuleStore, author: Author, path: WritePathName, next: Edit['next']): Promise<void> {
    const edit = { action: 'rules.demo', ruleIds: DEMO_RULE_IDS, next }
    const { changes } = await store.edit(edit, { author, path })
    await this.#deps.live.refresh()
    if (changes.length > 0 && path !== 'demo.start') this.#deps.log.event('demo_ended', { by: author.actor })
  }

  /** A rule whose bucket all clients share would be charged for real clients too. */
  async #requireHarmless(): Promise<void> {
    const { limiter } = this.#deps
    for (const subject of DEMO_SAMPLES) {
      const { decision } = await limiter.explain(subject)
      const others = decision.outcomes.filter(({ ruleId }) => !DEMO_RULE_IDS.includes(ruleId))
      const shared = others.find(({ ruleId }) => !/user|ip|api_key/.test(String(limiter.rule(ruleId)?.scope)))
      if (shared === undefined) continue
      const detail = `Demo traffic would use up the limit of rule ${shared.ruleId}, which real clients share.`
      throw new ProblemError(problem('DEMO_UNSAFE', detail))
    }
  }

  #expiresAt(): string | undefined {
    return this.#deps.limiter.rule(DEMO_RULE_IDS[0] ?? '')?.expires_at
  }

  #nowMs(): number {
    return this.#clock.nowUs() / 1000
  }
}
