// Quotas for Envoy on virtual time: simulated Envoys with the token buckets of Envoy 1.40, reports every 5 s, lost
// streams. Units are paid before they are assigned.

import { createLimiter, memoryStore, type RulesInput } from 'sluice'
import { type FakeClock, fakeClock, seededRandom } from 'sluice/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Call, StreamInput } from '../../src/grpc/method.ts'
import { ProtobufReader, ProtobufWriter } from '../../src/grpc/protobuf.ts'
import { createQuotaService, type QuotaService } from '../../src/grpc/rlqs/quota-service.ts'
import { distinctFrom, LEASE_SECONDS, mostPassed, shareOf } from '../../src/grpc/rlqs/share.ts'

type Assigned = { max: number; fill: number; seconds: number; blanket: number | undefined; ttl: number }

/** One bucket of a simulated Envoy. */
class Envoy {
  readonly #clock: FakeClock
  readonly #input: StreamInput
  readonly assignments: Assigned[] = []
  passed = 0
  denied = 0
  /** Requests that passed with a token. */
  byToken = 0
  abandoned = 0
  #unreported = { allowed: 0, denied: 0 }
  #tokens = 0
  #filledMs = 0
  #current: Assigned | undefined
  #endMs = 0
  connected = true

  constructor(service: QuotaService, clock: FakeClock) {
    this.#clock = clock
    if (service.method.kind !== 'stream') throw new Error('not a stream')
    const call = { path: service.method.path, metadata: () => undefined, timeoutMs: undefined } as unknown as Call
    this.#input = service.method.open(call, {
      write: (message) => {
        if (this.connected) this.#receive(message)
        return true
      },
      drained: async () => {},
      end: () => {},
      fail: (error) => {
        throw error
      },
    })
  }

  request(): void {
    const nowMs = this.#clock.nowUs() / 1000
    const { blanket = undefined } = this.#current ?? {}
    let allowed = true // no_assignment_behavior and the fallback of these tests
    if (this.#current !== undefined && nowMs < this.#endMs) {
      if (blanket !== undefined) allowed = blanket === 0
      else {
        this.#fill(nowMs)
        allowed = this.#tokens >= 1
        if (allowed) {
          this.#tokens -= 1
          this.byToken += 1
        }
      }
    } else if (this.#current !== undefined) allowed = false
    this.#unreported[allowed ? 'allowed' : 'denied'] += 1
    if (allowed) this.passed += 1
    else this.denied += 1
  }

  async report(): Promise<void> {
    const { allowed, denied } = this.#unreported
    this.#unreported = { allowed: 0, denied: 0 }
    const writer = new ProtobufWriter().string(1, 'edge')
    writer.message(2, (usage) => {
      usage.message(1, (id) => id.message(1, (entry) => entry.string(1, 'tenant').string(2, 'acme')))
      usage.uint(3, allowed).uint(4, denied)
    })
    await this.#input.message(writer.finish())
  }

  disconnect(): void {
    this.connected = false
    this.#input.cancel()
  }

  #fill(nowMs: number): void {
    const { max = 0, fill = 0, seconds = 1 } = this.#current ?? {}
    const fills = Math.floor((nowMs - this.#filledMs) / (seconds * 1000))
    this.#filledMs += fills * seconds * 1000
    this.#tokens = Math.min(max, this.#tokens + fills * fill)
  }

  /** Compares and converts token buckets as Envoy 1.40 does. */
  #receive(message: Uint8Array): void {
    for (const assigned of readAssignments(message)) {
      const nowMs = this.#clock.nowUs() / 1000
      if (assigned === 'abandoned') {
        this.abandoned += 1
        this.#current = undefined
        continue
      }
      this.assignments.push(assigned)
      const before = this.#current
      this.#endMs = nowMs + assigned.ttl * 1000
      const isSame =
        before?.max === assigned.max && before.fill === assigned.fill && before.blanket === assigned.blanket
      if (isSame) continue
      const hadTokens = before !== undefined && before.blanket === undefined
      if (hadTokens) this.#fill(nowMs)
      const share = hadTokens ? this.#tokens / before.max : 1
      this.#current = assigned
      this.#tokens = share * assigned.max
      this.#filledMs = nowMs
    }
  }
}

function readAssignments(message: Uint8Array): (Assigned | 'abandoned')[] {
  const all: (Assigned | 'abandoned')[] = []
  const seconds = (reader: ProtobufReader) => {
    let value = 0
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 1) value = reader.uint()
      else reader.skip()
    }
    return value
  }
  const bucket = (reader: ProtobufReader, into: Assigned) => {
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 1) into.max = reader.uint()
      else if (field === 2) into.fill = seconds(reader.message())
      else if (field === 3) into.seconds = seconds(reader.message())
    }
  }
  const strategy = (reader: ProtobufReader, into: Assigned) => {
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 1) into.blanket = reader.uint()
      else if (field === 3) bucket(reader.message(), into)
      else throw new Error(`strategy ${field} is not supported by Envoy`)
    }
  }
  const reader = new ProtobufReader(message)
  while (reader.next() !== 0) {
    const action = reader.message()
    const assigned: Assigned = { max: 0, fill: 0, seconds: 0, blanket: undefined, ttl: 0 }
    let abandoned = false
    for (let field = action.next(); field !== 0; field = action.next()) {
      if (field === 2) {
        const nested = action.message()
        for (let inner = nested.next(); inner !== 0; inner = nested.next()) {
          if (inner === 2) assigned.ttl = seconds(nested.message())
          else if (inner === 3) strategy(nested.message(), assigned)
          else nested.skip()
        }
      } else if (field === 3) {
        abandoned = true
        action.skip()
      } else action.skip()
    }
    all.push(abandoned ? 'abandoned' : assigned)
  }
  return all
}

function serve(rules: RulesInput) {
  const clock = fakeClock()
  const limiter = createLimiter({ rules, store: memoryStore({ clock }), clock })
  const service = createQuotaService({ limiter, authorize: () => () => true, nowMs: () => clock.nowUs() / 1000 }, 0)
  onTestFinished(async () => {
    service.close()
    await limiter.close()
  })
  const connect = () => new Envoy(service, clock)
  return { clock, limiter, service, connect }
}

const PER_TENANT = (limit: number, window: string, algorithm = 'token_bucket') =>
  [{ rule_id: 'tenants', limit, window, scope: 'per_tenant', algorithm, consistency: 'strict' }] as RulesInput

/** Sends load for so many seconds; Envoys report every 5 s, at different times. */
async function run(
  { clock, service }: { clock: FakeClock; service: QuotaService },
  envoys: readonly Envoy[],
  seconds: number,
  perSecond: (envoy: number, second: number) => number,
): Promise<void> {
  for (let second = 0; second < seconds; second += 1) {
    for (const [index, envoy] of envoys.entries()) {
      for (let count = perSecond(index, second); count > 0; count -= 1) envoy.request()
      if (envoy.connected && (second + index) % 5 === 0) await envoy.report()
    }
    clock.advanceMs(1000)
    await service.tick()
  }
}

describe('quotas', () => {
  test('a flood of several Envoys passes at most the limit and the shares in force', async () => {
    for (const algorithm of ['token_bucket', 'fixed_window', 'sliding_window']) {
      const served = serve(PER_TENANT(600, '1m', algorithm))
      const envoys = [served.connect(), served.connect(), served.connect()]
      await run(served, envoys, 5, () => 1) // subscribe, with the first requests passing unassigned
      const before = envoys.reduce((sum, { byToken }) => sum + byToken, 0)
      await run(served, envoys, 300, () => 40)
      const passed = envoys.reduce((sum, { byToken }) => sum + byToken, 0) - before
      // 305 s: a full bucket and its refill, or 6 windows. Shares are paid from them.
      expect(passed, algorithm).toBeLessThanOrEqual(600 + (600 * 305) / 60)
      expect(passed, algorithm).toBeGreaterThan(600 * 5 * 0.9)
    }
  })

  test('requests that used a token never exceed the units that were paid for them', async () => {
    const random = seededRandom(7)
    for (let round = 0; round < 20; round += 1) {
      const clock = fakeClock()
      const limit = random.pick([10, 60, 600, 10_000])
      const limiter = createLimiter({ rules: PER_TENANT(limit, '1m'), store: memoryStore({ clock }), clock })
      let paid = 0
      const counted = {
        check: async (subject: Parameters<typeof limiter.check>[0]) => {
          const decision = await limiter.check(subject)
          if (decision.allowed) paid += subject.cost ?? 1
          return decision
        },
        give: async (decision: Parameters<typeof limiter.give>[0]) => {
          paid -= decision.outcomes[0]?.cost ?? 0
          await limiter.give(decision)
        },
      }
      const service = createQuotaService(
        { limiter: counted, authorize: () => () => true, nowMs: () => clock.nowUs() / 1000 },
        0,
      )
      const envoys = [new Envoy(service, clock), new Envoy(service, clock)]
      const loads = envoys.map(() => random.pick([0, 1, 5, 50, 400]))
      for (let second = 0; second < 90; second += 1) {
        if (random.next() < 0.1) loads[random.between(0, 1)] = random.pick([0, 1, 5, 50, 400])
        if (random.next() < 0.02) {
          const lost = random.between(0, 1)
          envoys[lost]?.disconnect() // it goes on until its lease ends
          for (let left = 0; left < LEASE_SECONDS; left += 1) for (let n = 0; n < 20; n += 1) envoys[lost]?.request()
          envoys[lost] = new Envoy(service, clock)
        }
        await run({ clock, service }, envoys, 1, (index) => loads[index] ?? 0)
        const used = envoys.reduce((sum, { byToken }) => sum + byToken, 0)
        expect(used, `round ${round}, second ${second}`).toBeLessThanOrEqual(paid)
      }
      service.close()
      await limiter.close()
    }
  })

  test('every assignment is one that Envoy 1.40 applies', async () => {
    const served = serve(PER_TENANT(30, '1m'))
    const envoy = served.connect()
    await run(served, [envoy], 60, (_, second) => (second % 20 < 10 ? 30 : 0))
    expect(envoy.assignments.length).toBeGreaterThan(10)
    for (const { ttl, blanket, max, fill, seconds } of envoy.assignments) {
      expect(ttl).toBeGreaterThanOrEqual(15)
      if (blanket !== undefined) continue
      expect(Math.min(max, fill, seconds)).toBeGreaterThanOrEqual(1)
      expect([max, fill, seconds].every(Number.isInteger)).toBe(true)
    }
    expect(envoy.denied).toBeGreaterThan(0)
    const { quotaStreams, quotaBuckets, quotaRequests, quotaAssignments } = served.service.facts()
    expect([quotaStreams, quotaBuckets]).toEqual([1, 1])
    expect(quotaRequests.allowed).toBeGreaterThan(0)
    expect(quotaRequests.allowed + quotaRequests.denied).toBeLessThanOrEqual(envoy.passed + envoy.denied)
    const { share, deny, allow } = quotaAssignments
    expect([share + deny, allow]).toEqual([envoy.assignments.length, 0])
  })

  test('a bucket without units is denied, and gets a share without being asked when units have refilled', async () => {
    const served = serve(PER_TENANT(60, '1m'))
    await served.limiter.check({ tenant: 'acme', cost: 60, attributes: { domain: 'edge' } })
    const envoy = served.connect()
    envoy.request()
    await envoy.report()
    expect(envoy.assignments.at(-1)).toMatchObject({ blanket: 1 })
    for (let second = 0; second < 4; second += 1) {
      served.clock.advanceMs(1000)
      await served.service.tick()
    }
    expect(envoy.assignments.at(-1)).toMatchObject({ blanket: undefined })
  })

  test('units stay reserved after a stream has ended, and unused ones go back when demand falls', async () => {
    const served = serve(PER_TENANT(1000, '1h', 'fixed_window'))
    const remaining = async () => (await served.limiter.peek({ tenant: 'acme' })).remaining ?? 0
    const envoy = served.connect()
    await run(served, [envoy], 20, () => 10)
    const busy = await remaining()
    await run(served, [envoy], 60, () => 0)
    expect(await remaining(), 'demand fell').toBeGreaterThan(busy)
    const reserved = await remaining()
    envoy.disconnect()
    served.clock.advanceMs(60_000)
    await served.service.tick()
    expect(await remaining()).toBe(reserved)
  })

  test('requests that passed without a limit use no units of a rule that is added later', async () => {
    const served = serve([])
    const envoy = served.connect()
    await run(served, [envoy], 60, () => 50)
    expect(envoy.denied).toBe(0)
    served.limiter.setRules(PER_TENANT(600, '1m'))
    await run(served, [envoy], 10, () => 10) // its reports may still be of the time before the rule
    const before = envoy.byToken
    await run(served, [envoy], 60, () => 5)
    expect(envoy.byToken - before, 'half of the limit is asked for').toBeGreaterThan(250)
    served.limiter.setRules([])
    await run(served, [envoy], 30, () => 50)
    served.limiter.setRules(PER_TENANT(600, '1m'))
    await run(served, [envoy], 10, () => 10)
    const again = envoy.byToken
    await run(served, [envoy], 60, () => 5)
    expect(envoy.byToken - again, 'after the rule was away').toBeGreaterThan(250)
  })

  test('a stream whose token has ended is ended at the next tick', async () => {
    const limiter = createLimiter({ rules: PER_TENANT(10, '1m') })
    let isValid = true
    const authorize = () => () => isValid
    const service = createQuotaService({ limiter, authorize, nowMs: () => 0 }, 0)
    onTestFinished(() => limiter.close())
    const failed: string[] = []
    const output = { write: () => true, drained: async () => {}, end: () => {} }
    const { method } = service
    if (method.kind !== 'stream') throw new Error('not a stream')
    method.open({} as Call, { ...output, fail: ({ status }) => void failed.push(status) })
    await service.tick()
    expect(failed).toEqual([])
    isValid = false
    await service.tick()
    await service.tick()
    expect(failed).toEqual(['unauthenticated'])
  })

  test('a request that no rule matches is allowed, and an idle bucket is abandoned', async () => {
    const served = serve([{ rule_id: 'users', limit: 1, window: '1h', scope: 'per_user' }])
    const envoy = served.connect()
    envoy.request()
    await envoy.report()
    expect(envoy.assignments).toMatchObject([{ blanket: 0 }])
    served.clock.advanceMs(121_000)
    await served.service.tick()
    expect(envoy.abandoned).toBe(1)
  })
})

test('a share never passes more than its units, and a change is visible to Envoy', () => {
  for (let units = 0; units < 3000; units += 1) {
    const share = shareOf(units)
    if (share === undefined) {
      expect(units).toBeLessThan(2)
      continue
    }
    expect(mostPassed(share), String(units)).toBeLessThanOrEqual(units)
    const { maxTokens, tokensPerFill, fillSeconds } = share
    const slower = { maxTokens, tokensPerFill, fillSeconds: fillSeconds + 1 }
    const sent = distinctFrom(slower, share)
    const looksEqual = sent.maxTokens === maxTokens && sent.tokensPerFill === tokensPerFill
    expect(looksEqual && sent.fillSeconds !== fillSeconds, String(units)).toBe(false)
  }
})
