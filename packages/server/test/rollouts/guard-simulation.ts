// One rollout in virtual time: four nodes on one store, random clients, the real limiter, statistics, formula and
// decisions. Only the database is left out.

import { createLimiter, type Decision, type Limiter, memoryStore, pairsOf, type RuleInput } from 'sluice'
import { fakeClock, type Random, seededRandom } from 'sluice/testing'
import { GUARD_DEFAULTS } from '../../src/rollouts/guard-settings.ts'
import { guardStep } from '../../src/rollouts/guard-step.ts'
import { judge } from '../../src/rollouts/judge.ts'
import { nextPairShare, wantedPairs } from '../../src/rollouts/pair-share.ts'
import { type PairFigures, PairStatistics } from '../../src/rollouts/pair-statistics.ts'
import type { Proposal } from '../../src/rollouts/proposal.ts'
import { type Event, type State, transition } from '../../src/rollouts/state.ts'
import type { Step } from '../../src/rollouts/step.ts'
import { forgivesPhase } from '../../src/rollouts/tightens.ts'
import { type Credits, mergedPairs, offsetDenials, type PairWindow } from '../../src/rollouts/windows.ts'
import type { PlainRule } from '../../src/rules/changes.ts'

const NODES = 4
const SALT = '5a17'
const TICK_MS = 1000
const WINDOWS_MAX = 10
const FOR_MS = 40_000
const STEPS: readonly Step[] = [
  { kind: 'shadow', share: 0, forMs: FOR_MS, maxMs: 3 * FOR_MS },
  ...[0.01, 0.1, 0.5].map((share): Step => ({ kind: 'canary', share, forMs: FOR_MS, maxMs: 3 * FOR_MS })),
]

export type Scenario = {
  readonly name: string
  readonly current: RuleInput
  readonly candidate: RuleInput
  /** Keys of the requests of one second. */
  readonly requests: (second: number, random: Random) => readonly string[]
  readonly expected: 'done' | 'rolled_back' | 'rolling_out'
}

export type Run = {
  readonly state: State
  /** Step at which it ended or is. */
  readonly step: number
  readonly reason: string
  /** Requests that a key outside the canary lost to the candidate. */
  readonly wronglyRefused: number
}

export type Options = {
  readonly steps?: readonly Step[]
  /** Sees every decision. */
  readonly observe?: (decision: Decision, nowMs: number) => void
  /** No process evaluates the guard: its holder was killed, and the lease has not ended. */
  readonly isDead?: (nowMs: number) => boolean
  /** Seconds until the figures of a node can be read, and until a rollback reaches all nodes. */
  readonly delay?: number
  /** Seconds of traffic after the end. */
  readonly more?: number
}

class Simulation {
  readonly #scenario: Scenario
  readonly #random: Random
  readonly #options: Options
  readonly #steps: readonly Step[]
  readonly #clock = fakeClock()
  readonly #nodes: readonly Limiter[]
  readonly #statistics = Array.from({ length: NODES }, () => new PairStatistics(SALT, GUARD_DEFAULTS.windowMs))
  readonly #figures = new Map<string, PairFigures>()
  readonly #merged = new Map<number, PairWindow>()
  readonly #credits: Credits = new Map()
  /** Changed windows that the evaluator cannot read yet. */
  readonly #unread: Set<number>[] = []
  #stepAtMs: number
  #pairShare = 0.01
  #step = 0
  #state: State = { name: 'rolling_out', step: 0, paused: undefined }
  #reason = ''
  #wronglyRefused = 0
  /** Requests of the last second. */
  #sent = 0

  constructor(scenario: Scenario, seed: number, options: Options) {
    const clock = this.#clock
    const store = memoryStore({ clock })
    const rules = [scenario.current]
    this.#nodes = Array.from({ length: NODES }, () => createLimiter({ rules, store, clock, version: 7 }))
    this.#scenario = scenario
    this.#random = seededRandom(seed)
    this.#options = options
    this.#steps = options.steps ?? STEPS
    this.#stepAtMs = this.#nowMs
  }

  async run(): Promise<Run> {
    await this.#roll()
    const { more = 0, delay = 0 } = this.#options
    let second = 0
    for (; second < 900 && this.#state.name === 'rolling_out' && this.#state.paused === undefined; second += 1) {
      this.#send(second)
      await this.#evaluate()
    }
    for (const end = second + more; second < end; second += 1) {
      if (second === end - more + delay) await Promise.all(this.#nodes.map((node) => node.setRollouts([])))
      this.#send(second)
    }
    await Promise.all(this.#nodes.map((node) => node.close()))
    const [state, step, reason, wronglyRefused] = [this.#state, this.#step, this.#reason, this.#wronglyRefused]
    return { state, step, reason, wronglyRefused }
  }

  get #nowMs(): number {
    return this.#clock.nowUs() / 1000
  }

  get #share(): number {
    return this.#steps[this.#step]?.share ?? 0
  }

  async #roll(): Promise<void> {
    const { candidate, current } = this.#scenario
    const ruleId = String(current.rule_id)
    const rollout = { ruleId, salt: SALT, pairShare: this.#pairShare, candidate, share: this.#share }
    await Promise.all(this.#nodes.map((node) => node.setRollouts([rollout])))
  }

  /** The requests of one second. */
  #send(second: number): void {
    const users = this.#scenario.requests(second, this.#random)
    this.#sent = users.length
    const gapMs = Math.floor(TICK_MS / (users.length + 1))
    for (const user of users) {
      this.#clock.advanceMs(gapMs)
      const index = this.#random.between(0, NODES - 1)
      const decision = this.#nodes[index]?.checkSync({ user })
      if (decision === undefined) throw new Error('the memory store is synchronous')
      for (const pair of pairsOf(decision)) this.#statistics[index]?.add(pair, this.#nowMs)
      this.#options.observe?.(decision, this.#nowMs)
      if (!decision.allowed && this.#share === 0 && decision.outcomes[0]?.variant === 'candidate')
        this.#wronglyRefused += 1
    }
    this.#clock.advanceMs(TICK_MS - gapMs * users.length)
  }

  async #evaluate(): Promise<void> {
    this.#unread.push(flush(this.#statistics, this.#figures))
    const { delay = 0, isDead = () => false } = this.#options
    const readable = isDead(this.#nowMs) ? [] : this.#unread.splice(0, Math.max(0, this.#unread.length - delay))
    if (readable.length === 0) return
    const changed = new Set(readable.flatMap((starts) => [...starts]))
    const change = { base: this.#scenario.current as PlainRule, rule: this.#scenario.candidate as PlainRule }
    const phase = forgivesPhase(change, GUARD_DEFAULTS.newlyDenied.points)
    const windows = windowsOf(this.#figures, this.#merged, changed, this.#credits, phase)
    const rules = [{ ruleId: 'r', alertOnly: false, phase, windows, credits: this.#credits }]
    const [nowMs, stepAtMs] = [this.#nowMs, this.#stepAtMs]
    const verdict = judge({ settings: GUARD_DEFAULTS, rules, nodes: [], nowMs, stepAtMs, forMs: FOR_MS })
    const [steps, before] = [this.#steps, `${this.#step} ${this.#pairShare}`]
    const facts = { kind: 'change' as const, state: this.#state, steps, stepAt: new Date(this.#stepAtMs) }
    const { event, reason } = guardStep(facts as Proposal, verdict, { errors: 0, alerted: false }, this.#nowMs)
    if (event !== undefined) this.#move(event, reason)
    const last = windows.at(-1)
    const elapsed = last === undefined ? 1 : Math.max(1, (this.#nowMs - last.startMs) / 1000)
    const { windowMs, newlyDenied } = GUARD_DEFAULTS
    const wanted = wantedPairs({
      checksPerSecond: this.#sent,
      neededPerSecond: (1000 * newlyDenied.minPairs) / windowMs,
      isSuspect: last !== undefined && last.rawNewlyDenied > 0.01 * newlyDenied.points * last.rawPairs,
    })
    this.#pairShare = nextPairShare(this.#pairShare, (last?.rawPairs ?? 0) / elapsed, wanted)
    if (`${this.#step} ${this.#pairShare}` !== before && this.#state.name === 'rolling_out') await this.#roll()
  }

  #move(event: Event, reason: string): void {
    const next = transition(this.#state, event, { kind: 'change', steps: this.#steps.length })
    if ('refused' in next) throw new Error(next.refused)
    this.#state = next.state
    this.#reason = reason
    if (next.state.name !== 'rolling_out' || next.state.step === this.#step) return
    this.#step = next.state.step
    this.#stepAtMs = this.#nowMs
  }
}

export function simulate(scenario: Scenario, seed: number, options: Options = {}): Promise<Run> {
  return new Simulation(scenario, seed, options).run()
}

/** Returns the starts of the windows that changed. */
function flush(statistics: readonly PairStatistics[], figures: Map<string, PairFigures>): Set<number> {
  const changed = new Set<number>()
  for (const [node, one] of statistics.entries()) {
    for (const window of one.changed()) {
      figures.set(`${window.startMs} ${node}`, window.figures)
      changed.add(window.startMs)
    }
  }
  return changed
}

/** The newest windows. Credits of keys stay when a window is dropped. */
function windowsOf(
  figures: ReadonlyMap<string, PairFigures>,
  merged: Map<number, PairWindow>,
  changed: ReadonlySet<number>,
  credits: Credits,
  phase: boolean,
): PairWindow[] {
  const { keyPercent } = GUARD_DEFAULTS.newlyDenied
  for (const startMs of changed) {
    const all = [0, 1, 2, 3].flatMap((node) => figures.get(`${startMs} ${node}`) ?? [])
    merged.set(startMs, mergedPairs(startMs, all, keyPercent))
  }
  const sorted = [...merged.values()].sort((one, other) => one.startMs - other.startMs)
  const dropped = sorted.splice(0, Math.max(0, sorted.length - WINDOWS_MAX))
  offsetDenials(dropped, phase, credits)
  for (const { startMs } of dropped) merged.delete(startMs)
  return sorted
}
