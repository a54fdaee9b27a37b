// Compares the drop-in limiter with RateLimiterRedis of rate-limiter-flexible, call by call, on one Redis. Excludes the
// differences that docs/reference/drop-in-stores.md lists.

import { Redis } from 'ioredis'
import library, { RateLimiterRes } from 'rate-limiter-flexible'
import { limiterClass } from 'sluice/rate-limiter-flexible'
import { redisStore } from 'sluice/redis'
import { fakeClock, type RedisProcess, seededRandom, startRedis } from 'sluice/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const SluiceLimiter = limiterClass(library)
type Limiter = Pick<
  InstanceType<typeof SluiceLimiter>,
  'consume' | 'penalty' | 'reward' | 'get' | 'set' | 'block' | 'delete' | 'points'
>
type Settings = { points: number; duration: number; blockDuration?: number; keyPrefix: string }
type Step = (limiter: Limiter) => unknown

let redis: RedisProcess
let client: Redis
const closes: (() => Promise<void>)[] = []
let prefixes = 0

beforeAll(async () => {
  redis = await startRedis()
  client = new Redis(redis.url)
})
afterAll(async () => {
  for (const close of closes) await close()
  client.disconnect()
  await redis.stop()
})

/** Both limiters, at the start of a window: our windows are aligned to the clock, theirs begin with a hit. */
function both(settings: Partial<Settings> = {}): [theirs: Limiter, ours: Limiter] {
  const options = { points: 5, duration: 1000, keyPrefix: `p${prefixes++}`, ...settings }
  const store = redisStore(client, { clock: fakeClock(), leases: false, deadlineMs: 5000 })
  closes.push(() => store.close())
  const theirs = new library.RateLimiterRedis({ storeClient: client, ...options })
  return [theirs as unknown as Limiter, new SluiceLimiter({ store, ...options })]
}

/** A result with its time rounded to the window of 1000 seconds, because theirs uses the real clock. */
function comparable(value: unknown): unknown {
  if (!(value instanceof RateLimiterRes)) return value
  const { msBeforeNext, ...others } = value.toJSON()
  return { ...others, after: msBeforeNext === -1 ? 'never' : Math.round(msBeforeNext / 1_000_000) }
}

/** Errors are equal to each other; refusals are compared. */
async function outcome(step: Step, limiter: Limiter): Promise<unknown> {
  try {
    return { passed: comparable(await step(limiter)) }
  } catch (reason) {
    return reason instanceof Error ? 'an error' : { refused: comparable(reason) }
  }
}

async function outcomes(steps: readonly Step[], limiter: Limiter): Promise<unknown[]> {
  const seen: unknown[] = []
  for (const step of steps) seen.push(await outcome(step, limiter))
  return seen
}

const STEPS: Readonly<Record<string, readonly Step[]>> = {
  'no points': [(l) => l.consume('k', 0), (l) => l.consume('k'), (l) => l.consume('k', 0), (l) => l.penalty('k', 0)],
  'no points of a key that has used up its points': [
    (l) => l.consume('k', 5),
    (l) => l.consume('k', 0),
    (l) => l.consume('k'),
    (l) => l.consume('k', 0),
  ],
  'no points of a blocked key': [(l) => l.block('k', 1000), async (l) => isRefused(l.consume('k', 0))],
  'points as text': [
    async (l) => (await l.penalty('k', '2')).consumedPoints,
    async (l) => isRefused(l.consume('k', '9')),
  ],
  'points that are no whole number': [
    (l) => l.consume('k', 0.5),
    (l) => l.consume('k', Number.NaN),
    (l) => l.consume('k', '1.5'),
    (l) => l.consume('k', '01' as never),
    (l) => l.set('k', 0.5, 1000),
    (l) => l.get('k'),
  ],
  'more points than there are': [
    (l) => l.consume('k', 6),
    async (l) => isRefused(l.consume('k')),
    (l) => l.delete('k'),
  ],
  'other points': [
    (l) => l.consume('k', 3),
    (l) => Object.assign(l, { points: 2 }).consume('k'),
    (l) => Object.assign(l, { points: 9 }).consume('k'),
    (l) => Object.assign(l, { points: Number.NaN }),
    (l) => l.get('k'),
  ],
  'a block': [
    (l) => l.block('k', 1000),
    async (l) => isRefused(l.consume('k')),
    (l) => l.delete('k'),
    (l) => l.get('k'),
  ],
  'a block of a key that has a count': [(l) => l.consume('k', 2), (l) => l.block('k', 1000), (l) => l.get('k')],
  'a block without end': [(l) => l.block('k', 0), async (l) => isRefused(l.consume('k'))],
  'a count that is set': [
    (l) => l.set('k', 4, 1000),
    (l) => l.get('k'),
    (l) => l.consume('k'),
    (l) => l.set('k', 2, 1000),
    (l) => l.consume('k'),
  ],
  'a count that is set instead of a block': [
    (l) => l.block('k', 1000),
    (l) => l.set('k', 1, 1000),
    (l) => l.consume('k'),
  ],
  'a count above the points': [
    (l) => l.set('k', 9, 1000),
    async (l) => isRefused(l.consume('k')),
    (l) => l.delete('k'),
  ],
  'a count for as long as a window': [
    (l) => l.set('k', 3),
    async (l) => (await l.set('k', '9')).msBeforeNext,
    async (l) => isRefused(l.consume('k')),
  ],
  'penalties that exceed the points': [(l) => l.penalty('k', 9), (l) => l.consume('k'), (l) => l.reward('k', 8)],
  rewards: [(l) => l.consume('k', 4), (l) => l.reward('k', 2), (l) => l.reward('k', 2), (l) => l.consume('k')],
}

/** Ignores the count of a blocked key: the library keeps counting, we report one more than the limit. */
async function isRefused(promise: Promise<unknown>): Promise<boolean> {
  return promise.then(
    () => false,
    (reason) => reason instanceof RateLimiterRes && reason.remainingPoints === 0,
  )
}

describe.each([undefined, 1000])('blockDuration %s', (blockDuration) => {
  test.each(Object.entries(STEPS))('%s: same outcomes as the library', async (_name, steps) => {
    const [theirs, ours] = both(blockDuration === undefined ? {} : { blockDuration })
    expect(await outcomes(steps, ours)).toEqual(await outcomes(steps, theirs))
  })
})

test('penalties do not block; only the first request that exceeds the points does', async () => {
  const steps: Step[] = [(l) => l.penalty('k', 7), (l) => l.consume('k'), (l) => l.consume('k', 0), (l) => l.get('k')]
  const [theirs, ours] = both({ blockDuration: 5000 })
  expect(await outcomes(steps, ours)).toEqual(await outcomes(steps, theirs))
})

/** A count of 0 is no entry here, but an entry in the library. */
function unlessNone(outcome: unknown): unknown {
  const { passed } = outcome as { passed?: { consumedPoints?: number } | null }
  return passed?.consumedPoints === 0 ? { passed: null } : outcome
}

test('any sequence of calls has the same outcomes as the library', async () => {
  for (let seed = 1; seed <= 40; seed += 1) {
    const { between, pick } = seededRandom(seed)
    const [theirs, ours] = both({ points: between(1, 8) })
    let consumed = 0
    for (let count = 0; count < 25; count += 1) {
      const [points, next] = [between(0, 3), between(1, 8)]
      const back = Math.min(points, consumed) // below 0, the library gives credit
      const verbs: Step[] = [
        (l) => l.consume('k', points),
        (l) => l.consume('k'),
        (l) => l.penalty('k', points),
        (l) => l.reward('k', back),
        (l) => l.set('k', Math.min(1 + points, l.points), 1000),
        (l) => Object.assign(l, { points: next }).consume('k', 0),
        async (l) => void (await l.delete('k')),
        (l) => l.get('k'),
      ]
      const step = pick(verbs)
      const [our, their] = [await outcome(step, ours), await outcome(step, theirs)]
      expect(unlessNone(our), `seed ${seed}, call ${count}`).toEqual(unlessNone(their))
      consumed = (await theirs.get('k'))?.consumedPoints ?? 0
    }
  }
})

describe('while requests arrive over another connection', () => {
  const ROUNDS = 20
  const replacements: Readonly<Record<string, Step>> = {
    'extending a block': (l) => l.block('k', 2000),
    'shortening a block': (l) => l.block('k', 500),
    'blocking instead of a count': (l) => l.set('k', 9, 1000),
    'setting a count to as many points as there are': (l) => l.set('k', 5, 1000),
  }

  /** Number of rounds that admitted a request although the key was blocked before and after. */
  async function admittedRounds(
    replace: Step,
    begin: Step,
    limiters: () => readonly [Limiter, Limiter],
  ): Promise<number> {
    let rounds = 0
    for (let round = 0; round < ROUNDS; round += 1) {
      const [limiter, other] = limiters()
      await begin(limiter)
      const passed: boolean[] = []
      let done = false
      const requests = Array.from({ length: 8 }, async () => {
        while (!done) passed.push(!(await isRefused(other.consume('k'))))
      })
      for (let turn = 0; turn < 3; turn += 1) await replace(limiter)
      done = true
      await Promise.all(requests)
      if (passed.includes(true)) rounds += 1
    }
    return rounds
  }

  /** Two limiters with shared counts, each with its own store. */
  function pair(): readonly [Limiter, Limiter] {
    const keyPrefix = `p${prefixes++}`
    const limiters = [1, 2].map(() => {
      const store = redisStore(client, { clock: fakeClock(), leases: false, deadlineMs: 5000 })
      closes.push(() => store.close())
      return new SluiceLimiter({ store, points: 5, duration: 1000, keyPrefix })
    })
    return limiters as unknown as readonly [Limiter, Limiter]
  }

  test.each(Object.entries(replacements))('%s admits none of them', async (_name, replace) => {
    expect(await admittedRounds(replace, (l) => l.block('k', 1000), pair)).toBe(0)
  })

  test('setting a count admits none that the previous count refused', async () => {
    expect(
      await admittedRounds(
        (l) => l.set('k', 5, 1000),
        (l) => l.set('k', 5, 1000),
        pair,
      ),
    ).toBe(0)
  })
})
