// Changes and traffic for the simulation of the guard. Rates are just high enough for 200 pairs in a window of 10 s.

import type { Random } from 'sluice/testing'
import type { Scenario } from './guard-simulation.ts'

const rule = (limit: number, more: object = {}) => ({
  ...{ rule_id: 'r', scope: 'per_user', limit, window_seconds: 10, ...more },
})
const times = (count: number, key: (index: number) => string) => Array.from({ length: count }, (_, index) => key(index))

/** 40 of 200 clients, a fifth, make about 7 requests in 10 s, the others 1. */
const mixed = (_second: number, random: Random) =>
  times(44, () => (random.next() < 0.65 ? `heavy ${random.between(0, 39)}` : `light ${random.between(0, 159)}`))
const even = (_second: number, random: Random) => times(30, () => `user ${random.between(0, 199)}`)
/** 30 clients with one request a second each, and 3 that flood. */
const steady = (_second: number, random: Random) => [
  ...times(30, (index) => `user ${index}`),
  ...times(15, () => `flood ${random.between(0, 2)}`),
]
/** 10 clients begin each second and send 4 requests, once. */
const churn = (second: number) => times(40, (index) => `visitor ${second} ${index % 10}`)
/** Clients send 6 requests at once every 10 s, others send 3 every 2 s: above a limit of 10 in 10 s, without bursts. */
const bursts = (second: number) => [
  ...times(24, (index) => `burst ${Math.floor(index / 6) + 4 * (second % 10)}`),
  ...times(30, (index) => `steady ${Math.floor(index / 3) + 10 * (second % 2)}`),
]
/** 50 clients send 9 requests at once, at the end of one window of 10 s or at the start of the next. */
const edges = (second: number) =>
  second % 10 === 0 || second % 10 === 9 ? times(225, (index) => `user ${second % 10} ${index % 25}`) : []

/** Changes that must be rolled back. */
const BAD: readonly Scenario[] = [
  { name: 'limit 0 by mistake', current: rule(100), candidate: rule(0), requests: even, expected: 'rolled_back' },
  { name: 'half the limit', current: rule(10), candidate: rule(5), requests: mixed, expected: 'rolled_back' },
  { name: '70 % of the limit', current: rule(10), candidate: rule(7), requests: steady, expected: 'rolled_back' },
  {
    name: 'half the limit, all clients above it',
    current: rule(10),
    candidate: rule(5),
    requests: (_, random) => times(50, () => `user ${random.between(0, 29)}`),
    expected: 'rolled_back',
  },
  // A request of each client is refused by both versions: the clients stop after it.
  {
    name: '2 instead of 3, new clients',
    current: rule(3),
    candidate: rule(2),
    requests: churn,
    expected: 'rolled_back',
  },
  // Steady clients are newly allowed, others newly denied: nothing offsets one with the other.
  {
    name: 'a smaller burst and a higher rate',
    current: rule(10),
    candidate: rule(20, { burst: 3 }),
    requests: bursts,
    expected: 'rolled_back',
  },
  {
    name: 'token bucket with a small burst instead of a fixed window',
    current: rule(10, { algorithm: 'fixed_window' }),
    candidate: rule(10, { algorithm: 'token_bucket', burst: 2 }),
    requests: bursts,
    expected: 'rolled_back',
  },
  // Attackers with many keys are newly allowed and newly denied in turn, clients only newly denied.
  {
    name: 'half the limit behind a flood of many keys',
    current: rule(10),
    candidate: rule(5),
    requests: (second, random) => [
      ...times(30, (index) => `user ${index}`),
      ...times(second % 7 === 0 ? 400 : 20, () => `bot ${random.between(0, 199)}`),
    ],
    expected: 'rolled_back',
  },
]

/** Changes that must reach all keys. */
const GOOD: readonly Scenario[] = [
  { name: 'a harmless change', current: rule(100), candidate: rule(90), requests: even, expected: 'done' },
  { name: 'a higher limit', current: rule(5), candidate: rule(50), requests: mixed, expected: 'done' },
  {
    name: 'token bucket instead of a fixed window, below both',
    current: rule(10, { algorithm: 'fixed_window' }),
    candidate: rule(10, { algorithm: 'token_bucket' }),
    requests: edges,
    expected: 'done',
  },
  {
    name: 'a spike that both versions refuse',
    current: rule(10),
    candidate: rule(10, { burst: 9 }),
    requests: (second, random) => times(second % 60 > 40 ? 150 : 20, () => `user ${random.between(0, 99)}`),
    expected: 'done',
  },
  // Above both limits, the two buckets admit different requests of the same client.
  {
    name: 'a higher limit in a flood',
    current: rule(10),
    candidate: rule(11),
    requests: (_, random) => times(60, () => `user ${random.between(0, 24)}`),
    expected: 'done',
  },
  {
    name: 'a slightly lower limit in a flood',
    current: rule(25),
    candidate: rule(24),
    requests: (_, random) => times(110, () => `user ${random.between(0, 24)}`),
    expected: 'done',
  },
  {
    name: 'one flooding client',
    current: rule(40),
    candidate: rule(30),
    requests: (_, random) => [...times(30, () => 'flood'), ...times(25, () => `user ${random.between(0, 149)}`)],
    expected: 'done',
  },
  // More differing keys than the sample.
  {
    name: 'a higher limit in a flood of many keys',
    current: rule(4),
    candidate: rule(5),
    requests: (_, random) => times(160, () => `user ${random.between(0, 199)}`),
    expected: 'done',
  },
]

/** Without traffic, a rollout neither advances nor rolls back. */
const SILENT: readonly Scenario[] = [
  { name: 'silence', current: rule(100), candidate: rule(0), requests: () => [], expected: 'rolling_out' },
  {
    name: 'silence after a while',
    current: rule(100),
    candidate: rule(90),
    requests: (second, random) => (second < 15 ? even(second, random) : []),
    expected: 'rolling_out',
  },
]

export const SCENARIOS: readonly Scenario[] = [...BAD, ...GOOD, ...SILENT]

export function scenarioNamed(name: string): Scenario {
  const found = SCENARIOS.find((scenario) => scenario.name === name)
  if (found === undefined) throw new Error(`no scenario ${name}`)
  return found
}
