// Native mode: rules apply to descriptors, all or nothing over all of them.

import { LimiterError, memoryStore, type Store, type Take } from 'sluice'
import type { FakeClock } from 'sluice/testing'
import { describe, expect, it } from 'vitest'
import { nativeSubject } from '../../src/envoy/native-subject.ts'
import { rateLimits } from './rate-limit-fixture.ts'

const [OK, OVER] = [1, 2]

const PER_USER = { rule_id: 'per_user', scope: 'per_user', limit: 2, window: '1m', algorithm: 'fixed_window' }
const PER_IP = { rule_id: 'per_ip', scope: 'per_ip', limit: 3, window: '1h', algorithm: 'fixed_window' }

describe('native mode', () => {
  it('entries are facts or attributes, and the domain is an attribute', () => {
    const entries = Object.entries({
      ...{ user: 'u', api_key: 'k', remote_address: '203.0.113.7', tenant: 't', plan: 'gold' },
      ...{ ':path': '/a?b=c', method: 'GET', country: 'CH', __proto__x: 'p' },
    }).map(([key, value]) => ({ key, value }))
    expect(nativeSubject('edge', entries, 3)).toEqual({
      ...{
        user: 'u',
        apiKey: 'k',
        ip: '203.0.113.7',
        tenant: 't',
        plan: 'gold',
        path: '/a?b=c',
        method: 'GET',
        cost: 3,
      },
      attributes: { domain: 'edge', country: 'CH', __proto__x: 'p' },
    })
    const masked = nativeSubject('edge', [{ key: 'remote_address', value: '203.0.113.0/24' }], undefined)
    expect(masked).toMatchObject({ attributes: { remote_address: '203.0.113.0/24' } })
    expect(masked.ip).toBeUndefined()
  })

  it('a rule decides about a descriptor: status, limit, remaining and reset', async () => {
    const { ask } = rateLimits([], { rules: [PER_USER], headers: 'x-ratelimit' })
    expect(await ask('edge', [['user=ann']])).toEqual({
      code: OK,
      statuses: [{ code: OK, limit: { requests: 2, unit: 2, name: 'per_user' }, remaining: 1, reset: 60 }],
      headers: { 'X-RateLimit-Limit': '2', 'X-RateLimit-Remaining': '1', 'X-RateLimit-Reset': '60' },
      metadata: undefined,
    })
    expect((await ask('edge', [['user=ann']], 2)).code).toBe(OVER)
    expect((await ask('edge', [['user=ann']])).statuses).toMatchObject([{ code: OK, remaining: 0 }])
    const refused = await ask('edge', [['user=ann']])
    expect(refused).toMatchObject({ code: OVER, statuses: [{ code: OVER, remaining: 0 }] })
    expect(refused.headers['Retry-After']).toBe('60')
    expect(await ask('edge', [['other=ann']])).toMatchObject({ code: OK, statuses: [{ code: OK, remaining: 0 }] })
  })

  it('a refused descriptor resets when the same request passes, and never if waiting will not help', async () => {
    const refilling = { rule_id: 'three', scope: 'per_user', limit: 3, window: '1m' }
    const { ask } = rateLimits([], { rules: [refilling], headers: 'draft-03' })
    expect((await ask('edge', [['user=ann']], 3)).statuses).toMatchObject([{ code: OK, reset: 60 }])
    const refused = await ask('edge', [['user=ann']])
    expect(refused).toMatchObject({ code: OVER, statuses: [{ code: OVER, reset: 20 }] })
    expect(refused.headers).toMatchObject({ 'RateLimit-Reset': '20', 'Retry-After': '20' })
    const never = await ask('edge', [['user=ann']], 4)
    expect([never.code, never.statuses[0]?.reset]).toEqual([OVER, undefined])
    expect(Object.keys(never.headers)).toEqual(['RateLimit-Limit', 'RateLimit-Remaining'])
  })

  it('two refused descriptors: the headers tell when both pass', async () => {
    const slower = { ...PER_IP, limit: 1 }
    const { ask } = rateLimits([], { rules: [PER_USER, slower], headers: 'x-ratelimit' })
    const both = [['user=ann'], ['remote_address=203.0.113.7']]
    await ask('edge', both)
    await ask('edge', [['user=ann']])
    const refused = await ask('edge', both)
    expect(refused.statuses).toMatchObject([
      { code: OVER, reset: 60 },
      { code: OVER, reset: 3600 },
    ])
    expect(refused.headers).toMatchObject({ 'X-RateLimit-Reset': '3600', 'Retry-After': '3600' })
  })

  it.for([
    ['a key above 1024 characters', [[`user=${'x'.repeat(1025)}`]]],
    ['one such key of several descriptors', [['ip=203.0.113.7'], [`user=${'x'.repeat(1025)}`]]],
    ['a cost above the maximum', [{ entries: ['user=ann'], hits: 2 ** 32 }]],
    [
      'such a cost beside a peek',
      [
        { entries: ['user=ann'], hits: 0 },
        { entries: ['user=bob'], hits: 2 ** 40 },
      ],
    ],
  ] as const)('a client cannot avoid its limits by an error: %s is refused', async ([, descriptors]) => {
    const { ask } = rateLimits([], { rules: [PER_USER, PER_IP] })
    const { code, statuses } = await ask('edge', descriptors)
    expect(code).toBe(OVER)
    expect(statuses.map((status) => status.code)).toEqual(descriptors.map(() => OVER))
  })

  it('a refused descriptor consumes nothing of the others', async () => {
    const { ask } = rateLimits([], { rules: [PER_USER, PER_IP] })
    const both = [['user=ann'], ['remote_address=203.0.113.7']]
    await ask('edge', both)
    await ask('edge', both)
    const refused = await ask('edge', both)
    expect(refused.code).toBe(OVER)
    expect(refused.statuses.map(({ code }) => code)).toEqual([OVER, OK])
    await ask('edge', both)
    expect((await ask('edge', [both[1] ?? []])).statuses[0]).toMatchObject({ code: OK, remaining: 0 })
  })

  it('descriptors that share a bucket charge it once', async () => {
    const all = { rule_id: 'all', scope: 'global', limit: 10, window: '1h', algorithm: 'fixed_window' }
    const { ask } = rateLimits([], { rules: [all] })
    const answer = await ask('edge', [['user=ann'], { entries: ['country=CH'], hits: 3 }])
    expect(answer.statuses.map(({ remaining }) => remaining)).toEqual([7, 7])
  })

  it('0 hits read: they take nothing, and refuse the request if nothing is left', async () => {
    const { ask } = rateLimits([], { rules: [PER_USER, PER_IP] })
    const peek = { entries: ['user=ann'], hits: 0 }
    for (let time = 0; time < 3; time += 1) expect((await ask('edge', [peek])).statuses[0]?.remaining).toBe(2)
    await ask('edge', [['user=ann']], 2)
    expect(await ask('edge', [peek, ['remote_address=203.0.113.7']])).toMatchObject({
      code: OVER,
      statuses: [{ code: OVER }, { code: OK }],
    })
    expect((await ask('edge', [['remote_address=203.0.113.7']])).statuses[0]?.remaining).toBe(2)
  })

  it('a rule can be for one domain and match other entries', async () => {
    const rule = { ...PER_USER, when: { domain: 'edge', country: 'CH' } }
    const { ask } = rateLimits([], { rules: [rule] })
    expect((await ask('edge', [['user=ann', 'country=CH']])).statuses[0]?.remaining).toBe(1)
    expect((await ask('edge', [['user=ann', 'country=DE']])).statuses[0]?.limit).toBeUndefined()
    expect((await ask('other', [['user=ann', 'country=CH']])).statuses[0]?.limit).toBeUndefined()
  })

  it('a domain that no rule names is unlimited, and every rule applies to one that a rule names', async () => {
    const named = [{ edge: 'edge' }, { edge: ['x', 'ed*'] }, { edge: { not: 'other' } }] as const
    for (const { edge: domain } of named) {
      const bulk = { ...PER_IP, rule_id: 'bulk', when: { domain, bulk: 'yes' } }
      const { ask, recorded } = rateLimits([], { rules: [PER_USER, bulk], ruleDomains: [], metadata: true })
      const other = [['user=ann'], { entries: ['user=ann'], hits: 9, limit: [1, 2] as const }]
      for (let time = 0; time < 4; time += 1) {
        expect(await ask('other', other)).toMatchObject({ code: OK, statuses: [{ remaining: 0 }, { remaining: 0 }] })
      }
      expect(recorded, 'and counted').toEqual(Array(4).fill('null true'))
      expect((await ask('edge', [['user=ann']], 2)).statuses).toMatchObject([{ limit: { name: 'per_user' } }])
      expect((await ask('edge', [['user=ann']])).code).toBe(OVER)
    }
  })

  it('a change of the rules maps and unmaps domains', async () => {
    const { ask, limiter } = rateLimits([], { rules: [PER_USER], ruleDomains: [] })
    const isLimited = async (domain: string) => (await ask(domain, [['user=ann']])).statuses[0]?.limit !== undefined
    expect(await isLimited('edge')).toBe(false)
    limiter.setRules([PER_USER, { ...PER_IP, when: { domain: 'edge' } }])
    expect([await isLimited('edge'), await isLimited('other')]).toEqual([true, false])
    limiter.setRules([PER_USER, { ...PER_IP, when: { 'attributes.domain': 'other' } }])
    expect([await isLimited('edge'), await isLimited('other')]).toEqual([false, true])
  })

  it('a domain of the setting gets every rule; limits of requests, if enabled, apply to all domains', async () => {
    const { ask, recorded } = rateLimits([], { rules: [PER_USER], ruleDomains: ['edge'], overrides: true })
    expect((await ask('edge', [['user=ann']], 3)).code).toBe(OVER)
    const own = [{ entries: ['user=ann'], limit: [2, 4] as const }, ['user=ann']]
    const codes = [await ask('other', own), await ask('other', own), await ask('other', own)].map(({ code }) => code)
    expect(codes).toEqual([OK, OK, OVER])
    expect(recorded.slice(-2)).toEqual(['envoy:.override true', 'envoy:.override false'])
  })

  it('limits of requests apply only if enabled, and give back the rules if they refuse', async () => {
    const own = { entries: ['user=ann', 'burst=1'], limit: [1, 2] as const }
    const off = rateLimits([], { rules: [PER_USER] })
    expect((await off.ask('edge', [own])).statuses[0]?.limit?.name).toBe('per_user')
    const on = rateLimits([], { rules: [PER_IP], overrides: true })
    const both = [own, ['remote_address=203.0.113.7']]
    expect((await on.ask('edge', both)).statuses.map(({ remaining }) => remaining)).toEqual([0, 2])
    expect((await on.ask('edge', both)).statuses.map(({ code }) => code)).toEqual([OVER, OK])
    expect((await on.ask('edge', [['remote_address=203.0.113.7']])).statuses[0]?.remaining).toBe(1)
  })

  it('a limit of a request that is invalid, or cannot be counted, takes nothing from the rules', async () => {
    let isDown = false
    const store = (clock: FakeClock): Store => {
      const memory = memoryStore({ clock })
      return new Proxy(memory, {
        get: (target, name) => {
          const value = Reflect.get(target, name)
          if (typeof value !== 'function') return value
          return (...given: unknown[]) => {
            const isCounter = name === 'take' && (given[0] as Take).charges[0]?.kind === 'force'
            if (isDown && isCounter) throw new LimiterError('STORE_UNAVAILABLE', 'down')
            return value.apply(target, given)
          }
        },
      })
    }
    const { ask } = rateLimits([], { rules: [PER_IP], overrides: true, store })
    const ip = ['remote_address=203.0.113.7']
    await expect(ask('edge', [ip, { entries: ['user=ann'], limit: [1, 99] }])).rejects.toThrow(
      'descriptors[1].limit.unit',
    )
    isDown = true
    await expect(ask('edge', [ip, { entries: ['user=ann'], limit: [1, 2] }])).rejects.toThrow('STORE_UNAVAILABLE')
    expect((await ask('edge', [ip])).statuses[0]?.remaining).toBe(2)
  })

  it('every request of several descriptors is recorded once, with the decision that it got', async () => {
    const { ask, recorded } = rateLimits([], { rules: [PER_USER, PER_IP], overrides: true })
    const ip = ['remote_address=203.0.113.7']
    const own = { entries: ['burst=1'], limit: [1, 2] as const }
    await ask('edge', [['user=ann'], ip])
    await ask('edge', [own, ip])
    await ask('edge', [own, ip])
    await ask('edge', [['user=ann']], 1)
    await ask('edge', [{ entries: ['user=ann'], hits: 0 }, ip])
    await ask('edge', [own])
    expect(recorded).toEqual([
      'per_user true',
      'per_ip true',
      'envoy:.override false',
      'per_user false',
      'envoy:.override false',
    ])
  })

  it('a ban refuses every descriptor of the request without the others', async () => {
    const ban = { rule_id: 'ban', limit: 0, window: '1h', scope: 'per_user', when: { user: 'eve' } }
    const { ask } = rateLimits([], { rules: [ban, PER_IP] })
    expect(await ask('edge', [['user=eve'], ['remote_address=203.0.113.7']])).toMatchObject({
      code: OVER,
      statuses: [{ code: OVER }, { code: OK }],
    })
    expect((await ask('edge', [['remote_address=203.0.113.7']])).statuses[0]?.remaining).toBe(2)
  })
})
