// Replay of recorded requests on a virtual clock, one thread: one rule, five rules that all apply, two rule sets, and a
// log file from its bytes to the result.

import { InOrder, LogReader, type RecordedRequest, Replay, type ReplayOptions } from 'sluice/replay'
import { alternate, type Contender, median, resultsOf } from '../measure.ts'
import type { Scenario } from '../report.ts'
import { Stopwatch } from '../stopwatch.ts'
import { freshKey, seeded, zipf } from '../zipf.ts'

const EVENTS = 200_000
const KEYS = 20_000
const START_US = Date.UTC(2030, 0, 31, 12) * 1000
const GAP_US = 1000

const ONE = {
  rule_id: 'per_user',
  endpoint_pattern: '/api/v1/messages',
  scope: 'per_user',
  limit: 100,
  window_seconds: 60,
}
const FIVE = [
  ONE,
  { rule_id: 'per_ip', scope: 'per_ip', limit: 100_000, window_seconds: 60 },
  { rule_id: 'window', scope: 'per_user', limit: 500, window_seconds: 600, algorithm: 'sliding_window' },
  { rule_id: 'day', scope: 'per_user', limit: 10_000, window_seconds: 86_400, algorithm: 'fixed_window' },
  { rule_id: 'all', scope: 'global', limit: 1_000_000, window_seconds: 60 },
]

const NAMES = ['one rule', 'five rules', 'two rule sets', 'log file'] as const

export const scenario: Scenario = {
  what: 'replay of recorded requests, one thread',
  targets: { events_per_second: { atLeast: 300_000 } },
  async run({ rounds = 7 }) {
    const contenders: Record<(typeof NAMES)[number], Contender> = {
      'one rule': replays({ rules: [ONE], against: 'recorded' }),
      'five rules': replays({ rules: FIVE, against: 'recorded' }),
      'two rule sets': replays({ rules: [ONE], against: [{ ...ONE, limit: 50 }] }),
      'log file': logFile(),
    }
    const samples = await alternate(contenders, { rounds, warmups: 2 })
    const events_per_second = median(samples['one rule'].map((sample) => sample['events/s'] ?? Number.NaN))
    return { results: resultsOf(samples, 'events/s', 'events/s'), ratios: { events_per_second } }
  },
}

/** Requests are new objects in each round, as if just read. */
function replays(options: ReplayOptions): Contender {
  const choose = zipf(KEYS, seeded(1))
  const watch = new Stopwatch()
  return {
    round() {
      const requests = Array.from({ length: EVENTS }, (_, index): RecordedRequest => {
        const subject = { user: freshKey(choose()), ip: '192.0.2.1', method: 'POST', path: '/api/v1/messages' }
        return { kind: 'check', atUs: START_US + index * GAP_US, subject, allowed: true }
      })
      globalThis.gc?.()
      watch.start()
      const replay = new Replay(options)
      for (const request of requests) replay.add(request)
      const { replayed } = replay.result()
      watch.stop()
      return { 'events/s': replayed / (watch.ownMs / 1000) }
    },
  }
}

function logFile(): Contender {
  const choose = zipf(KEYS, seeded(1))
  const lines = Array.from({ length: EVENTS }, (_, index) => {
    const second = String(Math.floor(index / 10_000)).padStart(2, '0')
    const time = `31/Jan/2030:12:00:${second} +0000`
    return `192.0.2.1 - user_${choose()} [${time}] "POST /api/v1/messages HTTP/1.1" 200 512 "-" "curl/8.5.0"`
  })
  const bytes = Buffer.from(lines.join('\n'))
  const watch = new Stopwatch()
  return {
    round() {
      globalThis.gc?.()
      watch.start()
      const replay = new Replay({ rules: [ONE], against: 'recorded' })
      const order = new InOrder((request) => replay.add(request))
      const reader = new LogReader()
      for (const line of bytes.toString('utf8').split('\n')) {
        const request = reader.read(line)
        if (request !== undefined) order.add(request)
      }
      order.end()
      const { replayed } = replay.result()
      watch.stop()
      return { 'events/s': replayed / (watch.ownMs / 1000) }
    },
  }
}
