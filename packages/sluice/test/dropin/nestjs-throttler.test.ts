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

/** Applies decorators without their syntax, which is not erasable. */
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

async function statuses(send: () => Promise<Response>, times: number): Promise<number[]> {
  const seen: number[] = []
  for (let call = 0; call < times; call += 1) seen.push((await send()).status)
  return seen
}

afterEach(async () => {
  for (const app of apps.splice(0)) await app.close()
})

test('a client of another storage is rejected: every process would count by itself', () => {
  const client = { options: {}, status: 'ready' }
  expect(() => new SluiceThrottlerStorage(client as never)).toThrow(/options: unknown option.*redisStore\(client\)/)
})

test('has the type of a ThrottlerStorage', () => {
  expectTypeOf<SluiceThrottlerStorage>().toExtend<ThrottlerStorage>()
})

onEachStore((bench) => {
  const storage = () => new SluiceThrottlerStorage({ store: bench.store })

  test('the limit applies, and exceeding it blocks the client for a full ttl', async () => {
    const send = await appWith(storage(), [{ ttl: 60_000, limit: 2 }])
    bench.clock.advanceMs(30_000)
    expect(await statuses(send, 3)).toEqual([200, 200, 429])
    bench.clock.advanceMs(59_999)
    expect(await statuses(send, 1)).toEqual([429])
    bench.clock.advanceMs(1)
    expect(await statuses(send, 3)).toEqual([200, 200, 429])
  })

  test('headers report the numbers and the end of a block', async () => {
    const send = await appWith(storage(), [{ ttl: 60_000, limit: 1, blockDuration: 90_000 }])
    const [first, second] = [await send(), await send()]
    bench.clock.advanceMs(30_000)
    const third = await send()
    expect(Object.fromEntries(first.headers)).toMatchObject({
      'x-ratelimit-limit': '1',
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': '60',
    })
    expect([second.headers.get('retry-after'), third.headers.get('retry-after')]).toEqual(['90', '60'])
  })

  test('a block shorter than the ttl ends on time, with no hits left', async () => {
    const send = await appWith(storage(), [{ ttl: 60_000, limit: 2, blockDuration: 1000 }])
    expect(await statuses(send, 5)).toEqual([200, 200, 429, 429, 429])
    bench.clock.advanceMs(1000)
    expect(await statuses(send, 3)).toEqual([200, 200, 429])
  })

  test('without a block, clients are refused until the window ends', async () => {
    const send = await appWith(storage(), [{ ttl: 60_000, limit: 2, blockDuration: 0 }])
    bench.clock.advanceMs(30_000)
    expect(await statuses(send, 3)).toEqual([200, 200, 429])
    expect((await send()).headers.get('retry-after')).toBe('30')
    bench.clock.advanceMs(30_000)
    expect(await statuses(send, 1)).toEqual([200])
  })

  test('named throttlers are counted separately', async () => {
    const send = await appWith(storage(), [
      { name: 'short', ttl: 1000, limit: 1 },
      { name: 'long', ttl: 60_000, limit: 2, blockDuration: 0 },
    ])
    const responses = []
    for (const _ of [1, 2, 3]) {
      responses.push(await send())
      bench.clock.advanceMs(1000)
    }
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 429])
    expect(responses.map(({ headers }) => headers.get('x-ratelimit-remaining-long'))).toEqual(['1', '0', null])
    expect(responses[2]?.headers.get('retry-after-long')).toBe('58')
  })

  test('processes that share the store share the limit', async () => {
    const throttlers = [{ ttl: 60_000, limit: 10 }]
    const senders = await Promise.all(
      [1, 2, 3].map(() => appWith(new SluiceThrottlerStorage({ store: bench.another() }), throttlers)),
    )
    const responses = await Promise.all(Array.from({ length: 30 }, (_, call) => senders[call % 3]?.()))
    expect(responses.filter((response) => response?.status === 200)).toHaveLength(10)
  })
})

describe('while the store is unreachable', () => {
  test('requests fail, because this library has no option for it', async () => {
    const { store, close } = unreachableStore()
    const send = await appWith(new SluiceThrottlerStorage({ store }), [{ ttl: 60_000, limit: 2 }])
    expect(await statuses(send, 2)).toEqual([500, 500])
    await close()
  })
})
