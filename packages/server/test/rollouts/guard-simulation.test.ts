import { type Decision, pairsOf } from 'sluice'
import { expect, test } from 'vitest'
import { GUARD_DEFAULTS } from '../../src/rollouts/guard-settings.ts'
import { SCENARIOS, scenarioNamed } from './guard-scenarios.ts'
import { type Scenario, simulate } from './guard-simulation.ts'

const RUNS = 100

test(`${RUNS} seeded runs: at most one false rollback, none missed, silence pauses`, { timeout: 300_000 }, async () => {
  const wrong: string[] = []
  const falseTrips: string[] = []
  for (let seed = 1; seed <= RUNS; seed += 1) {
    const scenario = SCENARIOS[seed % SCENARIOS.length] as Scenario
    const { state, step, reason, wronglyRefused } = await simulate(scenario, seed)
    const shown = `seed ${seed}, ${scenario.name}: ${state.name} at step ${step}: ${reason}`
    expect(wronglyRefused).toBe(0) // a key under shadow is never refused by the candidate
    if (state.name === scenario.expected) {
      if (state.name === 'rolled_back') expect(step, shown).toBe(0) // already the shadow step shows it
      if (state.name === 'rolling_out') expect(state.paused, shown).toMatch(/^no verdict after 2m: rule r: /)
    } else if (scenario.expected !== 'rolled_back' && state.name === 'rolled_back') falseTrips.push(shown)
    else wrong.push(shown)
  }
  expect(wrong).toEqual([])
  expect(falseTrips.length, falseTrips.join('\n')).toBeLessThanOrEqual(1)
})

const CANARY = { kind: 'canary' as const, share: 0.01, forMs: 40_000, maxMs: 120_000 }

test('without a shadow step, the canary of 1 % shows a bad change', async () => {
  const steps = [CANARY, { ...CANARY, share: 1 }]
  expect(await simulate(scenarioNamed('limit 0 by mistake'), 1, { steps })).toMatchObject({
    ...{ state: { name: 'rolled_back' }, step: 0 },
  })
})

/** Exact counts of all paired requests, without the code under test: when do they cross a threshold of the guard? */
class Oracle {
  readonly #windows = new Map<number, { pairs: number; denied: number }>()
  readonly #keys = new Set<string>()
  crossedMs = Number.POSITIVE_INFINITY
  /** Last request that only the new version refused and that was refused. */
  lastMs = 0

  observe(decision: Decision, nowMs: number): void {
    const start = Math.floor(nowMs / GUARD_DEFAULTS.windowMs)
    for (const { owner, enforced, currentDenied, candidateDenied } of pairsOf(decision)) {
      const window = this.#windows.get(start) ?? { pairs: 0, denied: 0 }
      this.#windows.set(start, window)
      window.pairs += 1
      if (currentDenied || !candidateDenied) continue
      window.denied += 1
      this.#keys.add(owner)
      if (enforced === 'candidate') this.lastMs = nowMs
    }
    if (this.#keys.size < 20 || nowMs >= this.crossedMs) return
    const reaches = (index: number, pairs: number, share: number) => {
      const window = this.#windows.get(index)
      return window !== undefined && window.pairs >= pairs && window.denied >= share * window.pairs
    }
    const failing = [1, 2, 3].filter((back) => reaches(start - back, 200, 0.05))
    if (reaches(start, 100, 0.5) || failing.length >= 2) this.crossedMs = nowMs
  }
}

test.each(['limit 0 by mistake', '70 % of the limit', 'half the limit'])(
  '%s: no request is lost later than 10 s after the threshold is crossed, though the evaluator dies at that moment',
  async (name) => {
    for (const seed of [1, 2, 3]) {
      const oracle = new Oracle()
      const { state } = await simulate(scenarioNamed(name), seed, {
        steps: [{ ...CANARY, share: 0.5, maxMs: 600_000 }],
        observe: (decision, nowMs) => oracle.observe(decision, nowMs),
        isDead: (nowMs) => nowMs >= oracle.crossedMs && nowMs < oracle.crossedMs + 4000,
        ...{ delay: 1, more: 20 },
      })
      expect(state.name).toBe('rolled_back')
      expect(oracle.lastMs).toBeGreaterThan(oracle.crossedMs) // the evaluator was dead
      expect(oracle.lastMs - oracle.crossedMs).toBeLessThanOrEqual(10_000)
    }
  },
)
