import { parseCidr } from 'sluice/http'
import { describe, expect, test } from 'vitest'
import { AUTH_PATH } from '../src/http/routes/auth.ts'
import type { HeaderSettings } from '../src/settings/header-settings.ts'
import { echo, openGateway, startUpstream } from './gateway/setup.ts'
import { CHECK, clientOf } from './service.ts'

const BAN = { rule_id: 'ban', limit: 0, window: '1d', scope: 'global' }
const ONE = { rule_id: 'one', limit: 1, window: '1d', scope: 'global', algorithm: 'fixed_window' }
const PROXIED = { 'x-original-uri': '/', 'x-original-method': 'GET', 'x-forwarded-for': '192.0.2.7' }
const RATE_LIMIT = /^(x-)?ratelimit|^retry-after$/i

const ENTRY_POINTS = ['gateway', 'forward auth', 'detail'] as const
type Refusal = { readonly headers: Record<string, string>; readonly retryAfter: unknown }

/** Response of each entry point to a refused client: gateway, forward auth, and `detail` of a check. */
async function refusals(
  settings: Partial<HeaderSettings>,
  rules: unknown[],
): Promise<Record<(typeof ENTRY_POINTS)[number], () => Promise<Refusal>>> {
  const { url: upstream } = await startUpstream(echo)
  const trustedProxies = [parseCidr('127.0.0.1')].flatMap((cidr) => cidr ?? [])
  const { address, apiAddress } = await openGateway(rules, { upstream, trustedProxies, ...settings })
  const [gateway, api] = [clientOf(address), clientOf(apiAddress)]
  await gateway.send('/', {})
  const ofResponse = async (response: Promise<{ headers: Headers; body: Record<string, unknown> }>) => {
    const { headers, body } = await response
    const ours = [...headers].filter(([name]) => RATE_LIMIT.test(name))
    return { headers: Object.fromEntries(ours), retryAfter: body.retry_after }
  }
  return {
    gateway: () => ofResponse(gateway.send('/', {})),
    'forward auth': () => ofResponse(api.send(AUTH_PATH, { headers: PROXIED })),
    detail: async () => {
      const { headers, retry_after: retryAfter } = (await api.post(CHECK, { detail: true })).body
      const named = Object.entries(headers as Record<string, string>).map(([name, value]) => [
        name.toLowerCase(),
        value,
      ])
      return { headers: Object.fromEntries(named) as Record<string, string>, retryAfter }
    },
  }
}

describe.each(ENTRY_POINTS)('%s', (entryPoint) => {
  test.each<[HeaderSettings['headerStyle'], string[]]>([
    ['none', []],
    ['legacy', ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset']],
    ['draft-6', ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset']],
    [['draft-11'], ['ratelimit', 'ratelimit-policy']],
  ])('sends headers of the style %s, and always Retry-After', async (headerStyle, names) => {
    const { headers } = await (await refusals({ headerStyle }, [ONE]))[entryPoint]()
    expect(Object.keys(headers).sort()).toEqual([...names, 'retry-after'].sort())
  })

  test('adds the jitter to Retry-After, with the same value in the body', async () => {
    const jitter = 1000
    const refused = (await refusals({ retryAfterJitterSeconds: jitter }, [ONE]))[entryPoint]
    const waits = new Set<number>()
    for (let sent = 0; sent < 20; sent += 1) {
      const { headers, retryAfter } = await refused()
      const wait = Number(headers['retry-after'])
      expect(retryAfter).toBe(wait)
      waits.add(wait)
    }
    expect(waits.size).toBeGreaterThan(1)
    expect(Math.max(...waits) - Math.min(...waits)).toBeLessThanOrEqual(jitter + 20)
  })

  test('adds no Retry-After to a ban, jitter or not', async () => {
    const { headers, retryAfter } = await (await refusals({ retryAfterJitterSeconds: 9 }, [BAN]))[entryPoint]()
    expect([headers['retry-after'], retryAfter]).toEqual([undefined, null])
  })
})
