import 'reflect-metadata'
import type { INestApplication } from '@nestjs/common'
import { Controller, Get, Module } from '@nestjs/common'
import { APP_GUARD, NestFactory } from '@nestjs/core'
import { ThrottlerGuard, ThrottlerModule, type ThrottlerModuleOptions, type ThrottlerStorage } from '@nestjs/throttler'
import { SluiceThrottlerStorage } from 'sluice/nestjs-throttler'
import { afterEach, describe, expect, expectTypeOf, test } from 'vitest'
import { onEachStore, unreachableStore } from './each-store.ts'

type Throttlers = Extract<ThrottlerModuleOptions, readonly unknown[]>
const apps: INestApplication[] = []

/** Decorators without their syntax: types that are erased cannot be decorated. */
class Hello {
  hello(): string {
    return 'hello'
  }
}
Controller()(Hello)
Get()(Hello.prototype, 'hello', Object.getOwnPropertyDescriptor(Hello.prototype, 'hello') as PropertyDescriptor)

async function appWith(storage: ThrottlerStorage, throttlers: Throttlers): Promise<() => Promise<Response>> {
  class App {}
  const imports = [ThrottlerModule.forRoot({ throttlers, storage })]
  Module({ imports, controllers: [Hello], providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }] })(App)
  const app = await NestFactory.create(App, { logger: false })
  apps.push(app)
  await app.listen(0, '127.0.0.1')
  const url = await app.getUrl()
  return () => fetch(url)
}

async function statuses(ask: () => Promise<Response>, times: number): Promise<number[]> {
  const seen: number[] = []
  for (let call = 0; call < times; call += 1) seen.push((await ask()).status)
  return seen
}

afterEach(async () => {
  for (const app of apps.splice(0)) await app.close()
})

test('the client of another storage is refused, or every process would count for itself', () => {
  const client = { options: {}, status: 'ready' }
  expect(() => new SluiceThrottlerStorage(client as never)).toThrow(
    /options: is not an option here.*redisStore\(client\)/,
  )
})

test('it is a ThrottlerStorage', () => {
  expectTypeOf<SluiceThrottlerStorage>().toExtend<ThrottlerStorage>()
})

onEachStore((bench) => {
  const storage = () => new SluiceThrottlerStorage({ store: bench.store })

  test('the limit holds, and who exceeds it is kept out for a whole ttl', async () => {
    const ask = await appWith(storage(), [{ ttl: 60_000, limit: 2 }])
    bench.clock.advanceMs(30_000)
    expect(await statuses(ask, 3)).toEqual([200, 200, 429])
    bench.clock.advanceMs(59_999)
    expect(await statuses(ask, 1)).toEqual([429])
    bench.clock.advanceMs(1)
    expect(await statuses(ask, 3)).toEqual([200, 200, 429])
  })

  test('headers tell the numbers, and when a block ends', async () => {
    const ask = await appWith(storage(), [{ ttl: 60_000, limit: 1, blockDuration: 90_000 }])
    const [first, second] = [await ask(), await ask()]
    bench.clock.advanceMs(30_000)
    const third = await ask()
    expect(Object.fromEntries(first.headers)).toMatchObject({
      'x-ratelimit-limit': '1',
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': '60',
    })
    expect([second.headers.get('retry-after'), third.headers.get('retry-after')]).toEqual(['90', '60'])
  })

  test('a block shorter than the ttl ends when it says, with nothing counted', async () => {
    const ask = await appWith(storage(), [{ ttl: 60_000, limit: 2, blockDuration: 1000 }])
    expect(await statuses(ask, 5)).toEqual([200, 200, 429, 429, 429])
    bench.clock.advanceMs(1000)
    expect(await statuses(ask, 3)).toEqual([200, 200, 429])
  })

  test('without a block, the window decides', async () => {
    const ask = await appWith(storage(), [{ ttl: 60_000, limit: 2, blockDuration: 0 }])
    bench.clock.advanceMs(30_000)
    expect(await statuses(ask, 3)).toEqual([200, 200, 429])
    expect((await ask()).headers.get('retry-after')).toBe('30')
    bench.clock.advanceMs(30_000)
    expect(await statuses(ask, 1)).toEqual([200])
  })

  test('named throttlers are counted apart', async () => {
    const ask = await appWith(storage(), [
      { name: 'short', ttl: 1000, limit: 1 },
      { name: 'long', ttl: 60_000, limit: 2, blockDuration: 0 },
    ])
    const answers = []
    for (const _ of [1, 2, 3]) {
      answers.push(await ask())
      bench.clock.advanceMs(1000)
    }
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 429])
    expect(answers.map(({ headers }) => headers.get('x-ratelimit-remaining-long'))).toEqual(['1', '0', null])
    expect(answers[2]?.headers.get('retry-after-long')).toBe('58')
  })

  test('processes that share the store share the limit', async () => {
    const throttlers = [{ ttl: 60_000, limit: 10 }]
    const asks = await Promise.all(
      [1, 2, 3].map(() => appWith(new SluiceThrottlerStorage({ store: bench.another() }), throttlers)),
    )
    const answers = await Promise.all(Array.from({ length: 30 }, (_, call) => asks[call % 3]?.()))
    expect(answers.filter((answer) => answer?.status === 200)).toHaveLength(10)
  })
})

describe('while the store is away', () => {
  test('the request fails: this library has no option for it', async () => {
    const { store, close } = unreachableStore()
    const ask = await appWith(new SluiceThrottlerStorage({ store }), [{ ttl: 60_000, limit: 2 }])
    expect(await statuses(ask, 2)).toEqual([500, 500])
    await close()
  })
})
