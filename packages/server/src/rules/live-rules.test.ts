import { createLimiter, type Limiter } from 'sluice'
import { afterEach, expect, test, vi } from 'vitest'
import { createLog } from '../log.ts'
import { Metrics } from '../metrics/metrics.ts'
import { LiveRules } from './live-rules.ts'
import type { FoundRules, RuleSource } from './rule-source.ts'

afterEach(() => void vi.useRealTimers())

type Held = FoundRules | Error

/** A source that holds what a test puts into it, and announces nothing. */
function live(held: Held): { live: LiveRules; limiter: Limiter; put(next: Held): void; changed(): void } {
  let present = held
  let changed = () => {}
  const source: RuleSource = {
    kind: 'database',
    location: 'a test',
    read: async (known) => {
      if (present instanceof Error) throw present
      return present.version === known ? undefined : present
    },
    watch: async (wake) => {
      changed = wake
      return { stop: async () => {} }
    },
    close: async () => {},
  }
  const limiter = createLimiter({ rules: [], version: 0 })
  const deps = { source, snapshot: undefined, limiter, metrics: new Metrics(), log: createLog('silent') }
  return {
    live: new LiveRules(deps),
    limiter,
    put: (next) => {
      present = next
    },
    changed: () => changed(),
  }
}

function set(version: number, limit: number = version): FoundRules {
  return { version, rules: [{ rule_id: 'one', limit, window: '1d' }] }
}

test('a change without a notification is active within 30 seconds', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const { live: rules, limiter, put } = live(set(1))
  await rules.start()
  put(set(2))
  await vi.advanceTimersByTimeAsync(30_000)
  await rules.refresh()
  expect(limiter.version).toBe(2)
  put(set(3))
  await vi.advanceTimersByTimeAsync(30_000)
  await vi.waitFor(() => expect(limiter.version).toBe(3))
  await rules.stop()
})

test('a refresh applies the rules that the source held at the call, under concurrent refreshes', async () => {
  const { live: rules, limiter, put, changed } = live(set(1))
  await rules.start()
  for (let version = 2; version < 50; version += 1) {
    changed()
    put(set(version))
    const refreshed = rules.refresh()
    changed()
    await refreshed
    expect(limiter.version).toBe(version)
  }
  await rules.stop()
})

test('invalid rules change nothing and are reported until valid ones arrive', async () => {
  const { live: rules, limiter, put } = live(set(1))
  await rules.start()
  put(set(2, -1))
  await rules.refresh()
  expect([limiter.version, rules.degradedReason()]).toEqual([
    1,
    'rules: a test has invalid rules; the last good rules stay active; ' +
      'rules[0].limit: give a whole number from 0 to 1000000000000',
  ])
  await rules.refresh()
  expect(rules.degradedReason()).toContain('invalid')
  put(set(3))
  await rules.refresh()
  expect([limiter.version, rules.degradedReason()]).toEqual([3, undefined])
  await rules.stop()
})

test('an unreachable source changes nothing, and the age of the rules is reported', async () => {
  const { live: rules, limiter, put } = live(set(1))
  await rules.start()
  put(new Error('on purpose'))
  await rules.refresh()
  expect([limiter.version, rules.degradedReason()]).toEqual([
    1,
    'rules: a test is unreachable; the active rules are 0 s old',
  ])
  put(set(1))
  await rules.refresh()
  expect(rules.degradedReason()).toBeUndefined()
  await rules.stop()
})

test('without rules and without a snapshot, start rejects', async () => {
  await expect(live(new Error('on purpose')).live.start()).rejects.toThrow('on purpose')
})
