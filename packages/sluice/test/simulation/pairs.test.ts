// Pairs against an oracle: during a rollout, each version decides every request exactly as a limiter that has only this
// version, whichever is enforced. Random rules, clients and times; `npm run sim -- --mutants` breaks the code.

import { type Decision, pairsOf } from 'sluice'
import { type Random, seededRandom } from 'sluice/testing'
import { expect, test } from 'vitest'
import { bench, type Fields } from '../limiter-fixture.ts'
import { staged } from '../rollouts/fixture.ts'

const { SIM_SEEDS = '60', SIM_FIRST = '1' } = process.env
const ALGORITHMS = ['token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log']
const CLIENTS = 4

/** Two limits, so that one may be spent while the other is not. */
function randomRule(random: Random, algorithm: string): Fields {
  const short = random.between(2, 8)
  const limits = [
    { name: 'short', limit: short, window_seconds: random.between(1, 5) },
    { name: 'long', limit: short * random.between(2, 6), window_seconds: 60 },
  ]
  return { rule_id: 'a', scope: 'per_user', algorithm, limits }
}

/** Names the first request that a version decides unlike a limiter of its own; undefined if there is none. */
async function difference(seed: number): Promise<string | undefined> {
  const random = seededRandom(seed)
  const algorithm = ALGORITHMS[random.between(0, ALGORITHMS.length - 1)] as string
  const [current, candidate] = [randomRule(random, algorithm), randomRule(random, algorithm)]
  const share = random.between(0, 2) / 2
  const [both, old, next] = [bench([current]), bench([current]), bench([current])]
  const all = [both, old, next]
  const request = () => {
    const gapMs = random.between(0, 3) === 0 ? random.between(0, 2000) : random.between(0, 60)
    for (const { clock } of all) clock.advanceMs(gapMs)
    const subject = { user: `user ${random.between(0, CLIENTS - 1)}` }
    return all.map(({ check }) => check(subject)) as [Decision, Decision, Decision]
  }
  for (let index = random.between(0, 40); index > 0; index -= 1) request() // buckets are partly spent at the start
  await both.limiter.setRollouts([staged({ candidate, share })])
  next.limiter.setRules([candidate])
  for (let index = 0; index < 300; index += 1) {
    const [decision, byOld, byNext] = request()
    const [pair] = pairsOf(decision)
    const enforced = pair?.enforced === 'candidate' ? byNext : byOld
    const decided = [decision.allowed, pair?.currentDenied, pair?.candidateDenied]
    const expected = [enforced.allowed, !byOld.allowed, !byNext.allowed]
    if (decided.join() !== expected.join()) return `request ${index}, ${algorithm}: ${decided}, expected ${expected}`
  }
  return undefined
}

test(`both versions decide as if alone in ${SIM_SEEDS} simulated rollouts`, { timeout: 600_000 }, async () => {
  const first = Number(SIM_FIRST)
  for (let seed = first; seed < first + Number(SIM_SEEDS); seed += 1) {
    expect(await difference(seed), `seed ${seed}; replay: npm run sim -- --seeds 1 --first ${seed}`).toBeUndefined()
  }
})
