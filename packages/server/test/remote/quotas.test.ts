// Quotas for Envoy on virtual time: the service, its engine and a model of Envoy 1.40, whose behaviour
// envoy-quotas.test.ts compares with a real Envoy. Every request that passes by a token is also checked by an oracle: a
// limiter with the same rule that sees it when it passes.

import { createLimiter, memoryStore, type RulesInput } from 'sluice'
import { fakeClock, type Random, seededRandom } from 'sluice/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Call } from '../../src/grpc/method.ts'
import { createQuotaService, type QuotaService } from '../../src/grpc/rlqs/quota-service.ts'
import { Envoy, REPORT_MS } from './envoy-model.ts'

const STEP_MS = 50
/** Requests of two Envoys at 400 a second, while an assignment is on its way. */
const ON_THE_WAY = 40

/** Requests per second of an Envoy in a second of the run. */
type Load = (envoy: number, second: number) => number

/** Requests of all Envoys in ten seconds. */
type Span = { passed: number; denied: number }

/** `nodes`: services on one store. */
function serve(rules: RulesInput, nodes = 1) {
  const clock = fakeClock()
  const limiter = createLimiter({ rules, store: memoryStore({ clock }), clock })
  const [oracle, alone] = [1, 2].map(() => createLimiter({ rules, store: memoryStore({ clock }), clock }))
  const deps = { limiter, authorize: () => () => true, nowMs: () => clock.nowUs() / 1000, nodes }
  const services = Array.from({ length: nodes }, () => createQuotaService(deps, 0))
  onTestFinished(async () => {
    for (const service of services) service.close()
    await Promise.all([limiter.close(), oracle?.close(), alone?.close()])
  })
  /** `admittedAlone`: what the algorithm would have admitted if it had decided each request. */
  const served = { clock, limiter, services, excess: 0, admittedAlone: 0 }
  /** The timers of Envoys start at different times, and so do the nodes that serve them. */
  const connect = (count = 1) =>
    Array.from({ length: count }, (_, index) => {
      const service = services[index % nodes] as QuotaService // in range
      return new Envoy(service, clock, REPORT_MS + ((index * 1370) % REPORT_MS))
    })
  const request = async (envoy: Envoy) => {
    const subject = { tenant: 'acme', attributes: { domain: 'edge' } }
    if ((await envoy.request()) && oracle?.checkSync(subject)?.allowed === false) served.excess += 1
    if (alone?.checkSync(subject)?.allowed) served.admittedAlone += 1
  }
  /** Load at random times, reports and ticks of the services. */
  const run = async (envoys: readonly Envoy[], seconds: number, perSecond: Load, seed = 1): Promise<Span[]> => {
    const random = seededRandom(seed)
    const spans: Span[] = []
    const totals = () => ({ passed: sum(envoys, 'passed'), denied: sum(envoys, 'denied') })
    let before = totals()
    for (let step = 0; step < (seconds * 1000) / STEP_MS; step += 1) {
      const second = Math.floor((step * STEP_MS) / 1000)
      for (const [index, envoy] of envoys.entries()) {
        await envoy.step()
        const expected = (perSecond(index, second) * STEP_MS) / 1000
        for (let count = poisson(expected, random); count > 0; count -= 1) await request(envoy)
      }
      clock.advanceMs(STEP_MS)
      if ((step + 1) % (1000 / STEP_MS) === 0) for (const service of services) await service.tick()
      if ((step + 1) % (10_000 / STEP_MS) !== 0) continue
      const now = totals()
      spans.push({ passed: now.passed - before.passed, denied: now.denied - before.denied })
      before = now
    }
    return spans
  }
  return Object.assign(served, { connect, request, run })
}

function sum<Key extends string>(items: readonly Readonly<Record<Key, number>>[], key: Key): number {
  return items.reduce((total, item) => total + item[key], 0)
}

function refusedShare(spans: readonly Span[]): number {
  return sum(spans, 'denied') / (sum(spans, 'denied') + sum(spans, 'passed'))
}

/** Number of events of a Poisson process. */
function poisson(expected: number, random: Random): number {
  const gap = () => -Math.log(1 - random.next())
  let count = 0
  for (let total = gap(); total < expected; total += gap()) count += 1
  return count
}

const PER_TENANT = (limit: number, window: string, algorithm = 'token_bucket') =>
  [{ rule_id: 'tenants', limit, window, scope: 'per_tenant', algorithm, consistency: 'strict' }] as RulesInput

describe('quotas', () => {
  const ENVOYS = [1, 3, 10]
  const ALGORITHMS = ['token_bucket', 'fixed_window', 'sliding_window']
  /** A sliding window counts units longer, in part, so those that are held cost more. */
  const BOUNDS: Record<string, { below: number; admitted: number }> = {
    token_bucket: { below: 0.8, admitted: 0.95 },
    fixed_window: { below: 0.8, admitted: 0.95 },
    sliding_window: { below: 0.7, admitted: 0.93 },
  }
  const CASES = ALGORITHMS.flatMap((algorithm) => ENVOYS.map((count) => [algorithm, count] as const))

  test.each(CASES)('%s, %i Envoys: demand below the limit is not refused', async (algorithm, count) => {
    for (const load of [0.3, BOUNDS[algorithm]?.below ?? 0]) {
      const served = serve(PER_TENANT(3000, '1m', algorithm))
      const spans = await served.run(served.connect(count), 90, () => (50 * load) / count)
      expect(sum(spans.slice(0, 2), 'denied'), `during start-up, at ${load} of the limit`).toBe(0)
      expect(refusedShare(spans.slice(2)), `later, at ${load} of the limit`).toBeLessThanOrEqual(0.01)
      expect(served.excess).toBe(0)
    }
  })

  test.each(CASES)('%s, %i Envoys: demand above the limit gets all of it, and no more', async (algorithm, count) => {
    for (const load of [1.5, 3]) {
      const served = serve(PER_TENANT(3000, '1m', algorithm))
      const envoys = served.connect(count)
      for (const minute of [0, 1, 2]) {
        const before = served.admittedAlone
        const admitted = sum(await served.run(envoys, 60, () => (50 * load) / count, minute), 'passed')
        const possible = Math.min(3000, served.admittedAlone - before)
        expect(admitted / possible, `minute ${minute}, at ${load} times the limit`).toBeGreaterThanOrEqual(
          BOUNDS[algorithm]?.admitted ?? 1,
        )
      }
      expect(served.excess, 'requests that the algorithm itself would have refused').toBe(0)
    }
  })

  test.each(ENVOYS)('%i Envoys of two nodes: demand below the limit is not refused', async (count) => {
    const served = serve(PER_TENANT(1200, '1m'), 2)
    const spans = await served.run(served.connect(count), 90, () => (20 * 0.8) / count)
    expect(sum(spans.slice(0, 2), 'denied'), 'during start-up').toBe(0)
    expect(refusedShare(spans.slice(2)), 'later').toBeLessThanOrEqual(0.01)
  })

  test('a new tenant far below the limit is never refused, and pays only for what it uses', async () => {
    const served = serve(PER_TENANT(6000, '1m', 'fixed_window'))
    const [envoy] = served.connect() as [Envoy]
    await served.run([envoy], 50, () => 17)
    expect(envoy.denied).toBe(0)
    const { remaining } = await served.limiter.peek({ tenant: 'acme' })
    expect(6000 - (remaining ?? 0) - envoy.passed, 'units that Envoy holds').toBeLessThan(17 * 20)
  })

  test('a new tenant above its rate is not refused while its burst lasts', async () => {
    const served = serve(PER_TENANT(3000, '1m'))
    const [envoy] = served.connect() as [Envoy]
    await served.run([envoy], 15, () => 100)
    expect(envoy.denied).toBe(0)
  })

  test.each([1, 3])('%i Envoys: a burst every ten seconds far below the limit is not refused', async (count) => {
    const served = serve(PER_TENANT(6000, '1m'))
    const envoys = served.connect(count)
    const spans: Span[] = []
    for (let burst = 0; burst < 9; burst += 1) {
      for (let request = 0; request < 300; request += 1) await served.request(envoys[request % count] as Envoy)
      spans.push(...(await served.run(envoys, 10, () => 0)))
    }
    expect(sum(envoys, 'denied')).toBe(0)
  })

  test('shares follow demand within one report', async () => {
    const served = serve(PER_TENANT(3000, '1m'))
    const envoys = served.connect(3)
    await served.run(envoys, 90, (envoy) => (envoy === 0 ? 150 : 5))
    const spans = await served.run(envoys, 30, (envoy) => (envoy === 2 ? 150 : 5))
    for (const { passed } of spans.slice(1)) expect(passed).toBeGreaterThanOrEqual(0.95 * 500)
    const before = envoys[2]?.passed ?? 0
    await served.run(envoys, 10, (envoy) => (envoy === 2 ? 150 : 5))
    expect((envoys[2]?.passed ?? 0) - before, 'by far the most demand').toBeGreaterThan(0.8 * 500)
  })

  test.each(ALGORITHMS)('%s: a flood after a quiet time gets no units twice, on two nodes', async (algorithm) => {
    const served = serve(PER_TENANT(3000, '1m', algorithm), 2)
    const envoys = served.connect(8)
    for (const quietSeconds of [67, 54]) {
      await served.run(envoys, quietSeconds, () => 2)
      await served.run(envoys, 20, () => 100)
    }
    expect(served.excess).toBe(0)
  })

  test('requests that used a token never exceed the units that were paid for them', async () => {
    const random = seededRandom(7)
    for (let round = 0; round < 10; round += 1) {
      const served = serve([])
      const limit = random.pick([10, 60, 600, 10_000])
      const limiter = createLimiter({
        rules: PER_TENANT(limit, '1m'),
        store: memoryStore({ clock: served.clock }),
        clock: served.clock,
      })
      let paid = 0
      const counted = {
        check: async (subject: Parameters<typeof limiter.check>[0]) => {
          const decision = await limiter.check(subject)
          if (decision.allowed) paid += subject.cost ?? 1
          return decision
        },
        give: async (decision: Parameters<typeof limiter.give>[0], units?: number) => {
          paid -= units ?? 0
          await limiter.give(decision, units)
        },
        peek: (subject: Parameters<typeof limiter.check>[0]) => limiter.peek(subject),
      }
      const nowMs = () => served.clock.nowUs() / 1000
      const service = createQuotaService({ limiter: counted, authorize: () => () => true, nowMs }, 0)
      served.services.push(service)
      const envoys = [new Envoy(service, served.clock, 700), new Envoy(service, served.clock, 3300)]
      const lost: Envoy[] = []
      const loads = envoys.map(() => random.pick([0, 1, 5, 50, 400]))
      for (let second = 0; second < 60; second += 1) {
        if (random.next() < 0.1) loads[random.between(0, 1)] = random.pick([0, 1, 5, 50, 400])
        const index = random.between(0, 1)
        const envoy = envoys[index]
        if (random.next() < 0.03 && envoy !== undefined) {
          envoy.disconnect() // it goes on until its lease ends
          lost.push(envoy)
          envoys[index] = new Envoy(service, served.clock, random.between(0, 5000))
        }
        await served.run([...envoys, ...lost], 1, (envoyIndex) => loads[envoyIndex] ?? 20, round * 60 + second)
        const used = sum(envoys, 'byToken') + sum(lost, 'byToken')
        expect(used, `round ${round}, second ${second}`).toBeLessThanOrEqual(paid + ON_THE_WAY)
      }
      await limiter.close()
    }
  })

  test('every assignment is one that Envoy 1.40 applies, and its tokens do not refill', async () => {
    const served = serve(PER_TENANT(30, '1m'))
    const [envoy] = served.connect() as [Envoy]
    await served.run([envoy], 60, (_, second) => (second % 20 < 10 ? 30 : 0))
    expect(envoy.assignments.length).toBeGreaterThan(10)
    for (const { ttl, blanket, max, fill, seconds } of envoy.assignments) {
      expect(ttl).toBeGreaterThanOrEqual(15)
      if (blanket !== undefined) continue
      expect(max).toBeGreaterThanOrEqual(1)
      expect([Number.isInteger(max), fill, seconds]).toEqual([true, 1, 365 * 86_400])
    }
    expect(envoy.denied).toBeGreaterThan(0)
    const { quotaStreams, quotaBuckets, quotaRequests, quotaAssignments } = served.services[0]?.facts() ?? {}
    expect([quotaStreams, quotaBuckets]).toEqual([1, 1])
    expect(quotaRequests?.allowed).toBeGreaterThan(0)
    expect(quotaAssignments?.share).toBeGreaterThan(0)
    expect(quotaAssignments?.allow).toBe(0)
  })

  test('a bucket without units is denied, and gets a share without being asked when units have refilled', async () => {
    const served = serve(PER_TENANT(60, '1m'))
    await served.limiter.check({ tenant: 'acme', cost: 60, attributes: { domain: 'edge' } })
    const [envoy] = served.connect() as [Envoy]
    await served.request(envoy)
    await served.run([envoy], 0.1, () => 0)
    expect(envoy.assignments.at(-1)).toMatchObject({ blanket: 1 })
    await served.run([envoy], 3, () => 0)
    expect(envoy.assignments.at(-1)).toMatchObject({ blanket: undefined })
  })

  test('units stay taken after a stream has ended, and unused ones go back when demand falls', async () => {
    const served = serve(PER_TENANT(10_000, '1h', 'fixed_window'))
    const taken = async () => 10_000 - ((await served.limiter.peek({ tenant: 'acme' })).remaining ?? 0)
    const [envoy] = served.connect() as [Envoy]
    await served.run([envoy], 30, () => 50)
    expect((await taken()) - envoy.byToken, 'held for later requests').toBeGreaterThan(50)
    await served.run([envoy], 30, () => 1)
    expect((await taken()) - envoy.byToken, 'demand fell').toBeLessThan(400)
    await served.run([envoy], 30, () => 0)
    expect(envoy.abandoned).toBe(1)
    expect((await taken()) - envoy.passed, 'held for an idle bucket').toBeLessThan(10)
    await served.run([envoy], 10, () => 50)
    const before = await taken()
    envoy.disconnect()
    await served.run([envoy], 60, () => 0)
    expect(await taken()).toBe(before)
  })

  test('requests that passed without a limit use no units of a rule that is added later', async () => {
    const served = serve([])
    const [envoy] = served.connect() as [Envoy]
    const afterRuleIsAdded = async () => {
      served.limiter.setRules(PER_TENANT(6000, '1m'))
      await served.run([envoy], 15, () => 10) // its reports may still be of the time before the rule
      const { denied, byToken } = envoy
      await served.run([envoy], 60, () => 5)
      expect([envoy.denied - denied, envoy.byToken - byToken > 250]).toEqual([0, true])
    }
    await served.run([envoy], 60, () => 50)
    expect(envoy.denied).toBe(0)
    await afterRuleIsAdded()
    served.limiter.setRules([])
    await served.run([envoy], 30, () => 50)
    await afterRuleIsAdded()
  })

  test('rare requests, each of which subscribes again, are counted and denied above the limit', async () => {
    const served = serve(PER_TENANT(3, '1h', 'fixed_window'))
    const [envoy] = served.connect() as [Envoy]
    for (let count = 0; count < 8; count += 1) {
      await served.request(envoy)
      await served.run([envoy], 25, () => 0)
    }
    expect([envoy.passed, envoy.denied]).toEqual([3, 5])
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
    const [envoy] = served.connect() as [Envoy]
    await served.request(envoy)
    await served.run([envoy], 0.1, () => 0)
    expect(envoy.assignments).toMatchObject([{ blanket: 0 }])
    await served.run([envoy], 25, () => 0)
    expect(envoy.abandoned).toBe(1)
  })
})
