import { expect, test } from 'vitest'
import { ALGORITHM_NAMES, type AlgorithmName } from '../algorithms/traits.ts'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { parseRules } from './parse.ts'

const SECOND_US = 1_000_000
const MINUTE_US = 60 * SECOND_US
const STEP_US = SECOND_US / 10
const COUNTED = ALGORITHM_NAMES.filter((algorithm) => algorithm !== 'concurrency' && algorithm !== 'leaky_bucket')

/** Most units admitted within one minute for a client that takes all it can get, ten times a second. */
async function mostSeen(algorithm: AlgorithmName, burst: number | undefined): Promise<number> {
  let most = 0
  for (const startUs of [0, 30 * SECOND_US, MINUTE_US - STEP_US]) {
    const clock = fakeClock(startUs)
    const rule = { rule_id: 'a', scope: 'per_user', limit: 60, window: '1m', algorithm, burst }
    const limiter = createLimiter({ rules: [rule], store: memoryStore({ clock }), clock })
    const times: number[] = []
    for (let atUs = 0; atUs < 2 * MINUTE_US; atUs += STEP_US) {
      while (limiter.checkSync({ user: 'ada' })?.allowed) times.push(atUs)
      clock.advanceUs(STEP_US)
    }
    for (const [first, fromUs] of times.entries()) {
      const within = times.slice(first).filter((atUs) => atUs < fromUs + MINUTE_US).length
      most = Math.max(most, within)
    }
  }
  return most
}

async function explained(algorithm: AlgorithmName, burst: number | undefined): Promise<number> {
  const rules = parseRules([{ rule_id: 'a', limit: 60, window: '1m', algorithm, burst }])
  const [rule] = (await createLimiter({ rules }).explain({})).rules
  const [, worst] = /up to (\d+) in the worst 60 s/.exec(rule?.detail ?? '') ?? []
  return Number(worst ?? 60)
}

test.each(COUNTED)('%s: explain reports the most that a client can get in one window', async (algorithm) => {
  expect(await explained(algorithm, undefined)).toBe(await mostSeen(algorithm, undefined))
})

test.each([1, 20, 100])('token_bucket with a burst of %i: explain reports the most in one window', async (burst) => {
  expect(await explained('token_bucket', burst)).toBe(await mostSeen('token_bucket', burst))
})
