import library, { RateLimiterRes } from 'rate-limiter-flexible'
import type { Store } from 'sluice'
import { limiterClass } from 'sluice/rate-limiter-flexible'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { manualTimers } from '../../src/testing/manual-timers.ts'
import { onEachStore, unreachableStore } from './each-store.ts'

const { RateLimiterCompatibleAbstract, RateLimiterMemory, RateLimiterQueue, RateLimiterUnion } = library
const { BurstyRateLimiter, RLWrapperBlackAndWhite, RLWrapperTimeouts } = library
const SluiceLimiter = limiterClass(library)
type Options = ConstructorParameters<typeof SluiceLimiter>[0]

/** Two points in ten seconds by default. */
function limiterOn(store: Store, options: Partial<Options> = {}) {
  return new SluiceLimiter({ store, points: 2, duration: 10, ...options })
}

/** The value or reason of a settled promise. */
async function outcome(promise: Promise<unknown>): Promise<object> {
  const [settled] = await Promise.allSettled([promise])
  if (settled.status === 'fulfilled') return { passed: true, ...plain(settled.value) }
  return { passed: false, ...plain(settled.reason) }
}

function plain(result: unknown): object {
  return result instanceof RateLimiterRes ? result.toJSON() : { other: result }
}

test('has the type that the library expects', () => {
  expect(new SluiceLimiter({ points: 1, duration: 1 })).toBeInstanceOf(RateLimiterCompatibleAbstract)
  expectTypeOf<InstanceType<typeof SluiceLimiter>>().toExtend<library.RateLimiterCompatibleAbstract>()
  expectTypeOf<InstanceType<typeof SluiceLimiter>>().toExtend<library.RateLimiterAbstract>()
})

test.each(['rlflx', 'a:b', ''])('durations and keys are those of the library, with keyPrefix "%s"', (keyPrefix) => {
  const options = { points: 2, duration: 1.5, blockDuration: 3, keyPrefix }
  const limiters = [new RateLimiterMemory(options), new SluiceLimiter(options)]
  for (const limiter of limiters) {
    const { msDuration, msBlockDuration } = limiter
    expect({ msDuration, msBlockDuration }).toEqual({ msDuration: 1500, msBlockDuration: 3000 })
    limiter.duration = 2
    expect(limiter.msDuration).toBe(2000)
  }
  const [theirs, ours] = limiters.map((limiter) =>
    ['user', 'rlflx:user', ''].map((key) => [limiter.getKey(key), limiter.parseKey(limiter.getKey(key))]),
  )
  expect(ours).toEqual(theirs)
})

onEachStore((bench) => {
  test('consume resolves within the points and rejects with a RateLimiterRes beyond them', async () => {
    const limiter = limiterOn(bench.store)
    expect(await outcome(limiter.consume('k'))).toEqual({
      ...{ passed: true, remainingPoints: 1, msBeforeNext: 10_000, consumedPoints: 1, isFirstInDuration: true },
    })
    bench.clock.advanceMs(4000)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true, remainingPoints: 0, msBeforeNext: 6000 })
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, consumedPoints: 3, msBeforeNext: 6000 })
    bench.clock.advanceMs(6000)
    expect(await outcome(limiter.consume('k', 2))).toMatchObject({ passed: true, isFirstInDuration: true })
  })

  test('points, penalty, reward, get and delete', async () => {
    const limiter = limiterOn(bench.store, { points: 10 })
    expect(await limiter.get('k')).toBeNull()
    await limiter.consume('k', 4)
    expect(await outcome(limiter.penalty('k', 3))).toMatchObject({ consumedPoints: 7, remainingPoints: 3 })
    expect(await outcome(limiter.reward('k', 5))).toMatchObject({ consumedPoints: 2, remainingPoints: 8 })
    expect(await outcome(limiter.reward('k', 5))).toMatchObject({ consumedPoints: 0, remainingPoints: 10 })
    await limiter.consume(7)
    expect(plain(await limiter.get(7))).toMatchObject({ consumedPoints: 1, remainingPoints: 9 })
    expect([await limiter.delete(7), await limiter.delete(7), await limiter.get(7)]).toEqual([true, false, null])
  })

  test('penalty and reward report that the key is blocked', async () => {
    const limiter = limiterOn(bench.store)
    await limiter.block('k', 5)
    for (const verb of ['penalty', 'reward'] as const) {
      expect(await outcome(limiter[verb]('k'))).toMatchObject({
        consumedPoints: 3,
        remainingPoints: 0,
        msBeforeNext: 5000,
      })
    }
  })

  test('blockDuration blocks a key when it exceeds its points, and then starts from 0', async () => {
    const limiter = limiterOn(bench.store, { blockDuration: 3 })
    await limiter.consume('k', 2)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, msBeforeNext: 3000, consumedPoints: 3 })
    bench.clock.advanceMs(2000)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, msBeforeNext: 1000 })
    bench.clock.advanceMs(1000)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true, consumedPoints: 1 })
  })

  test('block lasts as long as requested, also beyond the window, and delete ends it', async () => {
    const limiter = limiterOn(bench.store)
    expect(await outcome(limiter.block('k', 60))).toMatchObject({
      passed: true,
      msBeforeNext: 60_000,
      consumedPoints: 3,
    })
    bench.clock.advanceMs(59_000)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, msBeforeNext: 1000, remainingPoints: 0 })
    expect(plain((await limiter.get('k')) ?? undefined)).toMatchObject({ msBeforeNext: 1000, consumedPoints: 3 })
    await limiter.block('k', 5)
    bench.clock.advanceMs(5000)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true })
    await limiter.block('k', 60)
    await limiter.delete('k')
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true })
  })

  test('set replaces the count of the window, and more points than the limit block the key', async () => {
    const limiter = limiterOn(bench.store, { points: 5 })
    await limiter.consume('k', 4)
    await limiter.set('k', 2, 10)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true, consumedPoints: 3 })
    await limiter.set('k', 0, 10)
    expect(await limiter.get('k')).toBeNull()
    await limiter.set('k', 6, 30)
    bench.clock.advanceMs(29_000)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, msBeforeNext: 1000 })
  })

  test('execEvenly spreads the remaining points over the rest of the window', async () => {
    const timers = manualTimers()
    const limiter = limiterOn(bench.store, { points: 5, execEvenly: true, execEvenlyMinDelayMs: 1, timers })
    await limiter.consume('k')
    const second = outcome(limiter.consume('k'))
    let settled = false
    void second.then(() => {
      settled = true
    })
    await expect.poll(() => limiter.get('k').then((result) => result?.consumedPoints)).toBe(2)
    timers.advance(1999)
    await limiter.get('k')
    expect(settled).toBe(false)
    timers.advance(1)
    expect(await second).toMatchObject({ passed: true, msBeforeNext: 8000 })
  })

  test('execEvenly delays by at least execEvenlyMinDelayMs', async () => {
    const timers = manualTimers()
    const limiter = limiterOn(bench.store, { points: 5, execEvenly: true, execEvenlyMinDelayMs: 3000, timers })
    await limiter.consume('k')
    const second = outcome(limiter.consume('k'))
    await expect.poll(() => limiter.get('k').then((result) => result?.consumedPoints)).toBe(2)
    timers.advance(6000)
    expect(await second).toMatchObject({ passed: true, msBeforeNext: 4000 })
  })

  test('more points than can be counted are refused, and use up the limit', async () => {
    const limiter = limiterOn(bench.store)
    for (const points of [2 ** 50, 2 ** 50 + 1, Number.MAX_SAFE_INTEGER]) {
      expect(await outcome(limiter.consume(`k${points}`, points))).toMatchObject({ passed: false, remainingPoints: 0 })
      expect(await outcome(limiter.consume(`k${points}`))).toMatchObject({ passed: false, remainingPoints: 0 })
      expect(await outcome(limiter.penalty(`p${points}`, points))).toMatchObject({ passed: true, remainingPoints: 0 })
      expect(await outcome(limiter.consume(`p${points}`))).toMatchObject({ passed: false, remainingPoints: 0 })
    }
  })

  test('settings can change at any time', async () => {
    const limiter = limiterOn(bench.store)
    await limiter.consume('k', 2)
    limiter.points = 3
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true, consumedPoints: 3, remainingPoints: 0 })
    limiter.keyPrefix = 'other'
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true, consumedPoints: 1 })
    limiter.duration = 100
    expect(await outcome(limiter.consume('k'))).toMatchObject({ consumedPoints: 1, msBeforeNext: 100_000 })
    limiter.blockDuration = 7
    expect(await outcome(limiter.consume('k', 3))).toMatchObject({ passed: false, msBeforeNext: 7000 })
  })

  test('a block of 0 seconds is the longest possible', async () => {
    const limiter = limiterOn(bench.store)
    expect(await outcome(limiter.block('k', 0))).toMatchObject({ passed: true, msBeforeNext: -1 })
    bench.clock.advanceMs(365 * 86_400_000)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, msBeforeNext: 86_400_000 })
  })

  test('a block can be replaced by a shorter or longer one, and by a count', async () => {
    const limiter = limiterOn(bench.store)
    for (const seconds of [60, 5, 30]) {
      await limiter.block('k', seconds)
      expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, msBeforeNext: seconds * 1000 })
    }
    await limiter.set('k', 1)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true, consumedPoints: 2 })
    await limiter.set('k', 9)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, msBeforeNext: 10_000 })
  })

  test('windows of less than a second end on time', async () => {
    const limiter = limiterOn(bench.store, { duration: 0.25 })
    await limiter.consume('k', 2)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, msBeforeNext: 250 })
    bench.clock.advanceMs(250)
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true })
  })

  test('each prefix is counted separately', async () => {
    for (const keyPrefix of ['a', 'b']) {
      expect(await outcome(limiterOn(bench.store, { keyPrefix }).consume('k'))).toMatchObject({ consumedPoints: 1 })
    }
  })

  test('processes that share the store share the points', async () => {
    const limiters = [1, 2, 3].map(() => limiterOn(bench.another(), { points: 10 }))
    const outcomes = await Promise.all(
      Array.from({ length: 30 }, (_, call) => outcome((limiters[call % 3] as (typeof limiters)[0]).consume('k'))),
    )
    expect(outcomes.filter((one) => 'passed' in one && one.passed)).toHaveLength(10)
  })

  test('a Union consumes from each limiter, and reports each by its prefix', async () => {
    const union = new RateLimiterUnion(
      limiterOn(bench.store, { keyPrefix: 'second', points: 1, duration: 1 }),
      limiterOn(bench.store, { keyPrefix: 'minute', points: 5, duration: 60 }),
      new RateLimiterMemory({ keyPrefix: 'theirs', points: 5, duration: 60 }),
    )
    expect(Object.keys(await union.consume('k'))).toEqual(['second', 'minute', 'theirs'])
    const refused = await union.consume('k').catch((reasons: Record<string, unknown>) => reasons)
    expect(Object.keys(refused)).toEqual(['second'])
    expect(refused).toMatchObject({ second: { consumedPoints: 2 } })
  })

  test('BurstyRateLimiter uses the second limiter when the first is used up', async () => {
    const bursty = new BurstyRateLimiter(
      limiterOn(bench.store, { points: 1, duration: 1 }),
      limiterOn(bench.store, { keyPrefix: 'burst', points: 1, duration: 60 }),
    )
    const outcomes = [await outcome(bursty.consume('k')), await outcome(bursty.consume('k'))]
    expect(outcomes).toMatchObject([{ passed: true }, { passed: true }])
    expect(await outcome(bursty.consume('k'))).toMatchObject({ passed: false })
  })

  test('wrappers accept it', async () => {
    const listed = new RLWrapperBlackAndWhite({ limiter: limiterOn(bench.store), whiteList: ['w'], blackList: ['b'] })
    const inTime = new RLWrapperTimeouts({ limiter: limiterOn(bench.store), timeoutMs: 5000 })
    expect(await outcome(listed.consume('b'))).toMatchObject({ passed: false })
    expect(await outcome(listed.consume('w', 9))).toMatchObject({ passed: true })
    expect(await outcome(listed.consume('k'))).toMatchObject({ passed: true, consumedPoints: 1 })
    expect(await outcome(inTime.consume('k'))).toMatchObject({ passed: true, consumedPoints: 2 })
  })

  test('a Queue waits for points, and reports how many are left', async () => {
    const limiter = limiterOn(bench.store, { points: 2, duration: 0.05 })
    const queue = new RateLimiterQueue(limiter)
    expect([await queue.removeTokens(1), await queue.getTokensRemaining(), await queue.removeTokens(1)]).toEqual([
      1, 1, 0,
    ])
    const third = queue.removeTokens(2)
    bench.clock.advanceMs(50)
    expect(await third).toBe(0)
    await expect(queue.removeTokens(3)).rejects.toThrow('exceeds maximum')
  })
})

describe('while the store is unreachable', () => {
  test('consume rejects with an Error, not with a result', async () => {
    const { store, close } = unreachableStore()
    const limiter = limiterOn(store)
    for (const send of [() => limiter.consume('k'), () => limiter.get('k'), () => limiter.block('k', 1)]) {
      await expect(send()).rejects.toThrow(/STORE_UNAVAILABLE/)
    }
    await close()
  })

  test('an insuranceLimiter takes over, with the same block, and its refusals count', async () => {
    const { store, close } = unreachableStore()
    const insuranceLimiter = new RateLimiterMemory({ points: 1, duration: 10 })
    const limiter = limiterOn(store, { insuranceLimiter, blockDuration: 7, execEvenly: true })
    expect([insuranceLimiter.blockDuration, insuranceLimiter.execEvenly]).toEqual([7, true])
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: true, remainingPoints: 0 })
    expect(await outcome(limiter.consume('k'))).toMatchObject({ passed: false, msBeforeNext: 7000 })
    expect(plain((await limiter.get('k')) ?? undefined)).toMatchObject({ consumedPoints: 2 })
    await close()
  })

  test('it can be the insuranceLimiter of the library', async () => {
    const away = new library.RateLimiterRedis({
      storeClient: { status: 'end', on: () => {} },
      points: 9,
      duration: 10,
      insuranceLimiter: new SluiceLimiter({ points: 1, duration: 10 }) as never,
    })
    expect(await outcome(away.consume('k'))).toMatchObject({ passed: true, remainingPoints: 0 })
    expect(await outcome(away.consume('k'))).toMatchObject({ passed: false })
  })
})

describe('unsupported input is rejected', () => {
  test.each([
    [{ points: 1, duration: 0 }, /OPTION_INVALID.*duration: must be seconds, above 0/],
    [{ points: Number.NaN, duration: 1 }, /points: must be a number/],
    [{ points: 1, duration: 1, store: {} }, /store: pass memoryStore/],
    [{ points: 1, duration: 1, blockDuration: -1 }, /blockDuration: must be seconds, 0 or more/],
    [{ points: 1, duration: 1, storeClient: {} }, /storeClient: unknown option.*store: redisStore\(client\)/],
  ])('%j', (options, message) => {
    expect(() => new SluiceLimiter(options as never)).toThrow(message)
  })

  test.each([-1, 0.5, Number.NaN, 2 ** 53, '0', '01', '1.5', '-1', '1e3', '', null])('%j points', async (points) => {
    const limiter = new SluiceLimiter({ points: 1, duration: 1 })
    for (const verb of ['consume', 'penalty', 'reward', 'set'] as const) {
      await expect(limiter[verb]('k', points as number)).rejects.toThrow(/points: must be a whole number of at least 0/)
    }
  })

  test.each([-1, Number.NaN, 367 * 86_400, '1 minute'])('a block of %j seconds', async (seconds) => {
    const limiter = new SluiceLimiter({ points: 1, duration: 1 })
    for (const send of [() => limiter.block('k', seconds as number), () => limiter.set('k', 9, seconds as number)]) {
      await expect(send()).rejects.toThrow(/secDuration: must be seconds, at most 366 days/)
    }
  })

  test.each([[['a', 'b']], [{}], [null], [undefined], [Number.NaN]])('a key that is %j', async (key) => {
    const limiter = new SluiceLimiter({ points: 1, duration: 1 })
    const send = [() => limiter.consume(key as string), () => limiter.block(key as string, 1)]
    for (const one of send) await expect(one()).rejects.toThrow(/key: must be a string/)
  })

  test('settings that the constructor rejects', () => {
    const limiter = new SluiceLimiter({ points: 1, duration: 1 })
    const invalid = { points: Number.NaN, duration: 0, blockDuration: -1, keyPrefix: 7 }
    for (const [name, value] of Object.entries(invalid)) {
      expect(() => Object.assign(limiter, { [name]: value })).toThrow(/OPTION_INVALID/)
    }
    expect(limiter).toMatchObject({ points: 1, duration: 1, blockDuration: 0, keyPrefix: 'rlflx' })
  })

  test('customDuration, even with an insuranceLimiter', async () => {
    const insuranceLimiter = new RateLimiterMemory({ points: 1, duration: 1 })
    for (const insured of [{}, { insuranceLimiter }]) {
      const limiter = new SluiceLimiter({ points: 1, duration: 1, ...insured })
      for (const verb of ['consume', 'penalty', 'reward'] as const) {
        await expect(limiter[verb]('k', 1, { customDuration: 5 })).rejects.toThrow(/customDuration: create a limiter/)
      }
    }
  })
})
