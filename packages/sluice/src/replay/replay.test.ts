import { describe, expect, test } from 'vitest'
import { ALGORITHM_NAMES } from '../algorithms/traits.ts'
import type { Decision } from '../decision.ts'
import { createLimiter } from '../limiter.ts'
import { memoryStore } from '../store/memory.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { seededRandom } from '../testing/seeded-random.ts'
import {
  InOrder,
  type RecordedCheck,
  type RecordedRequest,
  Replay,
  type ReplayOptions,
  type ReplayResult,
  recordingOf,
  replay,
  seenFacts,
} from './index.ts'

const START_US = Date.UTC(2030, 0, 31, 12) * 1000
const PER_USER = { rule_id: 'per_user', scope: 'per_user', limit: 3, window_seconds: 60 }

function check(atMs: number, subject: RecordedCheck['subject'], more: Partial<RecordedCheck> = {}): RecordedCheck {
  return { kind: 'check', atUs: START_US + atMs * 1000, subject, ...more }
}

function run(requests: Iterable<RecordedRequest>, options: ReplayOptions): ReplayResult {
  const engine = new Replay(options)
  for (const request of requests) engine.add(request)
  return engine.result()
}

/** Runs random requests, refunds and resets on a live limiter, and records them. */
function recordedRun(rules: readonly object[], seed: number): RecordedRequest[] {
  const clock = fakeClock(START_US)
  const limiter = createLimiter({ rules, store: memoryStore({ clock }), clock })
  const random = seededRandom(seed)
  const pick = (count: number) => random.between(0, count - 1)
  const requests: RecordedRequest[] = []
  const admitted: { requestId: string; decision: Decision }[] = []
  for (let count = 0; count < 2000; count += 1) {
    clock.advanceUs(pick(400_000))
    const atUs = clock.nowUs()
    const kind = pick(10)
    if (kind === 0 && admitted.length > 0) {
      const [{ requestId, decision } = { requestId: '', decision: undefined }] = admitted.splice(
        pick(admitted.length),
        1,
      )
      const units = [undefined, 1, 0][pick(3)]
      if (decision !== undefined) void (units === 0 ? limiter.release(decision) : limiter.give(decision, units))
      requests.push({ kind: 'refund', atUs, requestId, units })
    } else if (kind === 1 && pick(5) === 0) {
      const user = `u${pick(5)}`
      void limiter.reset('rule', { user })
      requests.push({ kind: 'reset', atUs, ruleId: 'rule', key: { user } })
    } else {
      const subject = { user: `u${pick(5)}`, cost: 1 + pick(3), ip: '192.0.2.1', path: '/a' }
      const requestId = `r${count}`
      const decision = limiter.checkSync(subject, requestId) as Decision
      if (decision.allowed) admitted.push({ requestId, decision })
      requests.push({ kind: 'check', atUs, subject, requestId, allowed: decision.allowed, ruleId: decision.ruleId })
    }
  }
  return requests
}

describe('a replay with the rules in force', () => {
  test.each(ALGORITHM_NAMES)('reproduces every decision of a recorded run: %s', (algorithm) => {
    const rule = { rule_id: 'rule', scope: 'per_user', algorithm, limit: 10, window_seconds: 10 }
    const rules = [rule, { rule_id: 'all', algorithm: 'token_bucket', limit: 60, window_seconds: 20 }]
    for (const seed of [1, 2, 3]) {
      const requests = recordedRun(rules, seed)
      const result = run(requests, { rules, against: 'recorded' })
      expect(result.changes).toMatchObject({ newly_denied: 0, newly_allowed: 0 })
      expect(result.new).toEqual(result.now)
      expect(result.new.refused).toBeGreaterThan(50)
      expect(result.operations.unmatched).toBe(0)
      expect(result.rules.map(({ refused, now_refused: now }) => refused === now)).toEqual([true, true])
      expect(result.rules.every(({ coverage }) => coverage === 'exact')).toBe(true)
    }
  })
})

test('a replay charges the attribute of a request times its cost', () => {
  const sized = { ...PER_USER, limit: 6, cost: 'size' }
  const requests = [0, 1, 2].map((ms) => check(ms, { user: 'ann', cost: 2, attributes: { size: 3 } }))
  expect(run(requests, { rules: [sized] }).new).toMatchObject({ allowed: 1, refused: 2 })
})

describe('a result', () => {
  const traffic = [0, 1, 2, 3, 4].flatMap((second) => [
    check(second * 1000, { user: 'ann', method: 'GET', path: '/a' }),
    ...(second < 2 ? [check(second * 1000, { user: 'bob' })] : []),
  ])

  test('says who would have been refused, when, and by which rule', () => {
    const result = run(traffic, { rules: [PER_USER] })
    expect(result).toMatchObject({
      ...{ replayed: 7, against: 'nothing', new: { allowed: 5, refused: 2 }, now: null, changes: null },
      ...{ from: '2030-01-31T12:00:00.000Z', to: '2030-01-31T12:00:04.000Z' },
      clients: { seen: 2, refused: 1, now_refused: null },
    })
    expect(result.top).toEqual([
      {
        ...{ client: 'ann', kind: 'user', requests: 5, refused: 2, now_refused: null, rules: ['per_user'] },
        ...{ first_refused_at: '2030-01-31T12:00:03.000Z', last_refused_at: '2030-01-31T12:00:04.000Z' },
      },
    ])
    expect(result.refusals[0]).toEqual({
      ...{ at: '2030-01-31T12:00:03.000Z', client: 'ann', kind: 'user', method: 'GET', path: '/a' },
      ...{ rule_id: 'per_user', retry_after_ms: 17_000 },
    })
    expect(result.rules).toMatchObject([{ rule_id: 'per_user', coverage: 'exact', refused: 2, clients_refused: 1 }])
  })

  test('compares two rule sets on the same requests', () => {
    const result = run(traffic, { rules: [{ ...PER_USER, limit: 1 }], against: [PER_USER] })
    expect(result).toMatchObject({
      ...{ against: 'rules', now: { allowed: 5, refused: 2 }, new: { allowed: 2, refused: 5 } },
      changes: { newly_denied: 3, newly_allowed: 0, clients_newly_denied: 2, clients_newly_allowed: 0 },
    })
    expect(result.rules).toMatchObject([{ rule_id: 'per_user', refused: 5, now_refused: 2 }])
    expect(result.timeline).toMatchObject({ step_seconds: 1 })
    expect(result.timeline.points[4]).toEqual({
      ...{ at: '2030-01-31T12:00:04.000Z', requests: 1, refused: 1, now_refused: 1 },
    })
  })

  test('lists rules that were removed', () => {
    const result = run(traffic, { rules: [], against: [PER_USER] })
    expect(result.rules).toMatchObject([{ rule_id: 'per_user', refused: 0, now_refused: 2 }])
    expect(result.changes).toMatchObject({ newly_allowed: 2, clients_newly_allowed: 1 })
  })

  test('counts what shadow rules would refuse, and refuses nothing', () => {
    const result = run(traffic, { rules: [{ ...PER_USER, mode: 'shadow' }] })
    expect(result.new.refused).toBe(0)
    expect(result.rules).toMatchObject([{ mode: 'shadow', refused: 2, clients_refused: null }])
  })

  test('follows the virtual clock for rules that expire', () => {
    const expires = new Date((START_US + 3_500_000) / 1000).toISOString()
    expect(run(traffic, { rules: [{ ...PER_USER, expires_at: expires }] }).new.refused).toBe(1)
  })

  test('accepts rules of named stores and of several regions', () => {
    const rules = [{ ...PER_USER, store: 'hot', spread: 'global' }]
    expect(run(traffic, { rules }).new.refused).toBe(2)
  })

  test('has a timeline of bounded length', () => {
    const long = Array.from({ length: 5000 }, (_, minute) => check(minute * 60_000, { user: 'ann' }))
    const { timeline } = run(long, { rules: [PER_USER] })
    expect(timeline.step_seconds).toBe(3600)
    expect(timeline.points.length).toBeLessThanOrEqual(300)
    expect(timeline.points.reduce((sum, { requests }) => sum + requests, 0)).toBe(5000)
  })

  test('tracks a bounded number of clients, and still counts all requests', () => {
    const many = Array.from({ length: 260_000 }, (_, number) => check(number, { user: `u${number}` }))
    const flood = [...many, ...[1, 2, 3, 4].map((n) => check(300_000 + n, { user: 'late' }))]
    const result = run(flood, { rules: [PER_USER] })
    expect(result.new).toEqual({ allowed: 260_003, refused: 1 })
    expect(result.top).toMatchObject([{ client: 'late', refused: 1 }])
    expect(result.inaccuracies.untracked).toBe(60_003)
  })

  test('counts malformed requests with a reason', () => {
    const bad = [check(0, { ip: 'localhost' }), check(1, { cost: -1 }), { ...check(0, {}), atUs: Number.NaN }]
    const { inaccuracies } = run(bad, { rules: [{ ...PER_USER, scope: 'per_ip' }] })
    expect(inaccuracies).toMatchObject({ invalid: 3, invalid_reason: expect.stringContaining('ip') })
  })
})

describe('coverage', () => {
  const sampled = (rate: number) => [
    check(0, { user: 'ann', ip: '192.0.2.1' }, { position: 0.001, sampleRate: rate }),
    check(1, { user: 'bob', ip: '192.0.2.1' }, { position: 0.9, sampleRate: 1 }),
  ]
  const coverage = (rule: object, requests: readonly RecordedRequest[]) => {
    const recording = recordingOf(requests)
    const result = run(recording.requests, { rules: [{ ...PER_USER, ...rule }], sample: recording.sample })
    return result.rules[0]?.coverage
  }

  test.each([
    ['per_user', 'scaled'],
    ['global', 'needs_full_sample'],
    ['per_endpoint', 'needs_full_sample'],
    ['per_ip', 'needs_full_sample'], // its clients are users
    [['user', 'endpoint'], 'scaled'],
  ])('of a rule with scope %s in a sample: %s', (scope, expected) => {
    const requests = sampled(0.01).map((request) => ({ ...request, subject: { ...request.subject, path: '/a' } }))
    expect(coverage({ scope }, requests)).toBe(expected)
    expect(
      coverage(
        { scope },
        sampled(1).map((one) => ({ ...one, subject: { ...one.subject, path: '/a' } })),
      ),
    ).toBe('exact')
  })

  test('of a rule by address is scaled if addresses are the clients', () => {
    const requests = [check(0, { ip: '192.0.2.1' }, { position: 0, sampleRate: 0.5 })]
    expect(coverage({ scope: 'per_ip' }, requests)).toBe('scaled')
    expect(coverage({ scope: 'per_ip' }, [...requests, check(1, { ip: '2001:db8::1' })])).toBe('needs_full_sample')
  })

  test('names the facts that a recording lacks', () => {
    const result = run([check(0, { ip: '192.0.2.1' })], {
      rules: [PER_USER, { ...PER_USER, rule_id: 'mobile', scope: 'per_ip', when: { 'header.x-client': 'mobile' } }],
    })
    expect(result.rules.map(({ coverage, reason }) => [coverage, reason])).toEqual([
      ['missing_facts', 'no recorded request has the attribute header.x-client'],
      ['missing_facts', 'no recorded request has user'],
    ])
  })

  test('keeps only clients of the smallest sample, and scales their counts', () => {
    const requests = Array.from({ length: 1000 }, (_, n) =>
      check(n, { user: `u${n % 100}` }, { position: (n % 100) / 100, sampleRate: n < 500 ? 1 : 0.1 }),
    )
    const { requests: kept, sample } = recordingOf(requests)
    expect([kept.length, sample.rate]).toEqual([100, 0.1])
    const result = run(kept, { rules: [PER_USER], sample, against: 'recorded' })
    expect(result).toMatchObject({ replayed: 100, new: { allowed: 300, refused: 700 }, clients: { seen: 100 } })
  })

  test('requests that a rule refused which a sample cannot replay stay refused', () => {
    const fields = { position: 0, sampleRate: 0.5 }
    const refused = check(1, { user: 'ann' }, { ...fields, allowed: false, ruleId: 'all' })
    const { requests, sample } = recordingOf([check(0, { user: 'ann' }, { ...fields, allowed: true }), refused])
    const rules = [PER_USER, { rule_id: 'all', limit: 1, window_seconds: 60 }]
    const result = run(requests, { rules, sample, against: 'recorded' })
    expect(result).toMatchObject({ changes: { newly_denied: 0, newly_allowed: 0 }, new: { allowed: 2, refused: 2 } })
    expect(result.rules.find(({ rule_id: id }) => id === 'all')).toMatchObject({ refused: null, now_refused: 2 })
  })

  test('sees which facts occur', () => {
    expect(seenFacts(sampled(1))).toMatchObject({ user: true, ip: true, ipOfOther: true, apiKey: false })
  })
})

test('a replay reports progress, and can be cancelled', async () => {
  const requests = Array.from({ length: 10_000 }, (_, n) => check(n, { user: 'ann' }))
  const progress: number[] = []
  await replay(requests, { rules: [PER_USER], onProgress: (done) => progress.push(done) })
  expect(progress).toEqual([0, 4096, 8192, 10_000])
  const abort = new AbortController()
  const cancelled = replay(requests, { rules: [PER_USER], signal: abort.signal, onProgress: () => abort.abort() })
  await expect(cancelled).rejects.toThrow(/abort/i)
})

test('requests that are nearly in order are sorted', () => {
  const random = seededRandom(7)
  const times = Array.from({ length: 30_000 }, (_, n) => n * 10 + random.between(0, 5000))
  const sorted: number[] = []
  const order = new InOrder(({ atUs }) => sorted.push(atUs))
  for (const ms of times) order.add(check(ms, {}))
  order.end()
  expect(sorted).toEqual(times.map((ms) => START_US + ms * 1000).sort((a, b) => a - b))
})

test('requests of the same microsecond keep the order of their sequence numbers', () => {
  const sequence: (number | undefined)[] = []
  const order = new InOrder((request) => sequence.push(request.sequence))
  for (const number of [3, 1, 2]) order.add(check(0, {}, { node: 'a', sequence: number }))
  order.end()
  expect(sequence).toEqual([1, 2, 3])
})

test.each([
  ['all numbers', [1, 2, 3], 0],
  ['a gap', [1, 2, 4], 1],
  ['a process that began before the recording', [500, 501], 0],
  ['a restart', [1, 2, 3, 1, 2], 0],
  ['a restart of a process that began before the recording', [500, 501, 1, 2], 0],
  ['a gap before a restart', [1, 3, 1, 2], 1],
  ['a first event that the store decided after others', [2, 3, 1, 4], 0],
  ['that, and a restart', [2, 1, 3, 1, 2], 0],
])('lost events are gaps in the numbers of a process: %s', (_, numbers, lost) => {
  const requests = numbers.map((sequence, ms) => check(ms, {}, { node: 'a', sequence }))
  expect(recordingOf(requests).lost).toBe(lost)
})
