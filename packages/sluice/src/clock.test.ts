import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { systemTimers } from './clock.ts'
import { createLimiter } from './index.ts'
import { leaseStore } from './lease/lease-store.ts'
import { memoryStore } from './store/memory.ts'
import { isOneOfSeveralProcesses } from './warning.ts'

/** Stubs the globals of a browser, jsdom or an Electron renderer, where timers are numbers. */
function stubBrowser(): void {
  const [start, stop] = [setTimeout, clearTimeout]
  const timers = new Map<number, NodeJS.Timeout>()
  vi.stubGlobal('setTimeout', (work: () => void, ms: number) => {
    timers.set(timers.size + 1, start(work, ms))
    return timers.size
  })
  vi.stubGlobal('clearTimeout', (id: number) => stop(timers.get(id)))
  vi.stubGlobal('setImmediate', undefined)
  vi.stubGlobal('process', {})
}

const PLATFORMS = { 'Node.js': () => {}, 'a browser': stubBrowser }

describe.each(Object.entries(PLATFORMS))('in %s', (_name, stub) => {
  beforeEach(stub)
  afterEach(() => {
    vi.unstubAllGlobals()
  })

  test('timers run work later, soon and repeatedly, until they are stopped', async () => {
    await new Promise<void>((resolve) => void systemTimers.after(1, resolve))
    await new Promise<void>((resolve) => systemTimers.soon(resolve))
    let times = 0
    const stopped = await new Promise<number>((resolve) => {
      const stop = systemTimers.every(1, () => {
        times += 1
        if (times < 3) return
        stop()
        resolve(times)
      })
    })
    systemTimers.after(1, () => expect.unreachable())()
    await new Promise<void>((resolve) => void systemTimers.after(20, resolve))
    expect([stopped, times]).toEqual([3, 3])
  })

  test('a limiter checks, leases and accepts new rules', async () => {
    const rules = [{ rule_id: 'a', limit: 100, window_seconds: 60, scope: 'user', consistency: 'leased' }]
    const limiter = createLimiter({ rules, store: leaseStore(memoryStore()) })
    expect(await limiter.check({ user: 'alice' })).toMatchObject({ allowed: true, remaining: 99 })
    const prepared = await limiter.prepareRules(rules)
    prepared.enforce()
    expect(await limiter.check({ user: 'alice' })).toMatchObject({ allowed: true, remaining: 98 })
    expect(isOneOfSeveralProcesses()).toBe(false)
    await limiter.close()
  })
})

test('repeated work does not keep the process alive', () => {
  const unref = vi.fn()
  vi.stubGlobal('setTimeout', () => ({ unref }))
  systemTimers.every(1000, () => {})
  vi.unstubAllGlobals()
  expect(unref).toHaveBeenCalledOnce()
})
