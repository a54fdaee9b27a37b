import { describe, expect, test, vi } from 'vitest'
import { type Echoed, echo, exchange, linesOf, startUpstream, statusesIn } from '../gateway/setup.ts'
import { type Running, start } from '../process.ts'
import { ruleFile } from '../service.ts'
import { type ProxyName, startProxy } from './proxy-process.ts'

const RULES = `
- { rule_id: two, name: 'Zwei %s "Größe"', endpoint_pattern: /hello, limit: 2, window: 1d, scope: per_ip }
- { rule_id: user, endpoint_pattern: /mine, limit: 1, window: 1d, scope: per_user }
`

/** Setting with which each proxy fails closed while the service is unreachable, and its answer then. */
const CLOSED: Record<ProxyName, { edit(configuration: string): string; status: number }> = {
  nginx: { edit: (text) => text.replace('error_page 502 504 = @open;', ''), status: 500 },
  haproxy: { edit: (text) => text.replace(/(lua\.sluice \S+) open/, '$1 closed'), status: 503 },
}

const TRUSTED = ['--trusted-proxies', '127.0.0.1']

async function startService(port: number, trusted: readonly string[] = TRUSTED): Promise<Running> {
  const settings = [...trusted, '--user-from', 'header:x-user', '--log-level', 'warn']
  return start([...settings, '--rules', ruleFile(RULES), '--port', String(port)])
}

/** Service, application and proxy in front of both. */
async function startAll(name: ProxyName, edit?: (configuration: string) => string, trusted = TRUSTED) {
  const service = await startService(0, trusted)
  // The first check prepares the route. On a busy machine it may take a second, after which nginx admits the request,
  // and HAProxy repeats the check.
  const headers = { 'x-forwarded-for': '192.0.2.1' }
  if (trusted === TRUSTED) await fetch(`${service.address}/api/v1/rate-limit/auth`, { headers })
  const { url } = await startUpstream(echo)
  const servicePort = Number(new URL(service.address).port)
  const address = await startProxy(name, { service: servicePort, app: Number(url.port) }, edit)
  return { address, service, servicePort }
}

async function stop(service: Running): Promise<void> {
  service.signal('SIGKILL')
  await service.ended()
}

describe.each<ProxyName>(['nginx', 'haproxy'])('%s in front', (name) => {
  test('passes admitted requests and refuses the rest, both with headers', async () => {
    const { address } = await startAll(name)
    const headers = { 'x-sluice-bypass': 'slb_secret', 'x-other': 'kept' }
    const allowed = await fetch(`${address}/hello?x=1`, { method: 'POST', body: 'what is sent', headers })
    expect(allowed.status).toBe(200)
    const seen = (await allowed.json()) as Echoed
    expect(seen).toMatchObject({ method: 'POST', url: '/hello?x=1', body: 'what is sent' })
    expect(linesOf(seen.rawHeaders, 'x-other')).toEqual(['kept'])
    expect(linesOf(seen.rawHeaders, 'x-sluice-bypass'), 'a bypass token never reaches the upstream').toEqual([])
    expect(allowed.headers.get('x-ratelimit-limit')).toBe('2')
    expect(allowed.headers.get('x-ratelimit-remaining')).toBe('1')
    expect(allowed.headers.get('ratelimit-policy')).toBe('"two";q=2;w=86400')
    expect((await fetch(`${address}/hello`)).status).toBe(200)
    const refused = await fetch(`${address}/hello`)
    expect(refused.status).toBe(429)
    expect(refused.headers.get('content-type')).toContain('application/problem+json')
    expect(await refused.json()).toMatchObject({
      ...{ status: 429, rule_id: 'two', violated_rule: 'Zwei %s "Größe"', violated_tier: 'per_ip' },
      ...{ violated_limit: 'default', retry_after: Number(refused.headers.get('retry-after')) },
      retry_after_ms: expect.any(Number),
    })
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(40_000)
    expect(refused.headers.get('x-ratelimit-remaining')).toBe('0')
    expect(refused.headers.get('ratelimit')).toMatch(/^"two";r=0;t=\d+$/)
    expect((await fetch(`${address}/other`)).status, 'no rule').toBe(200)
  })

  test('a ban with status 403 is a 403 with its problem document', async () => {
    const problem = { title: 'Forbidden', status: 403, detail: 'Banned by rule two.' }
    const body = JSON.stringify(problem)
    const sluice = await startUpstream((_request, response) => {
      response.writeHead(403, { 'content-type': 'application/problem+json', 'sluice-refusal': body }).end(body)
    })
    const app = await startUpstream(() => expect.unreachable())
    const ports = { service: Number(sluice.url.port), app: Number(app.url.port) }
    const refused = await fetch(await startProxy(name, ports))
    expect([refused.status, await refused.json()]).toEqual([403, problem])
  })

  test('identifies the client, and the client cannot override it', async () => {
    const { address } = await startAll(name)
    const asUser = async (user: string) => (await fetch(`${address}/mine`, { headers: { 'x-user': user } })).status
    expect([await asUser('alice'), await asUser('alice'), await asUser('bob')]).toEqual([200, 429, 200])
    for (const _ of [1, 2]) expect((await fetch(`${address}/hello`)).status).toBe(200)
    const lies = [
      'X-Forwarded-For: 198.51.100.1',
      'X-Original-URI: /other\r\nX-Original-Method: PURGE',
      'X-Original-URL: /other',
      'X-Forwarded-Uri: /other\r\nX-Forwarded-Method: PURGE',
      'X-Forwarded-Uri: /other\r\nX-Forwarded-Uri: /another',
    ]
    for (const lie of lies) {
      const answer = await exchange(address, `GET /hello HTTP/1.1\r\nHost: x\r\n${lie}\r\nConnection: close\r\n\r\n`)
      expect(statusesIn(answer), lie).toEqual([429])
    }
    const free = await fetch(`${address}/other`, { headers: { 'x-forwarded-for': '198.51.100.1' } })
    expect(linesOf(((await free.json()) as Echoed).rawHeaders, 'x-forwarded-for')).toEqual(['127.0.0.1'])
  })

  test('fails open when configured to: requests pass without the service, and are limited again with it', async () => {
    const { address, service, servicePort } = await startAll(name)
    expect((await fetch(`${address}/hello`)).status).toBe(200)
    await stop(service)
    for (const _ of [1, 2, 3]) expect((await fetch(`${address}/hello`)).status).toBe(200)
    await startService(servicePort)
    await vi.waitFor(async () => expect((await fetch(`${address}/hello`)).status).toBe(429), { timeout: 20_000 })
  })

  test('fails closed when configured to: nothing passes without the service, and traffic resumes with it', async () => {
    const { edit, status } = CLOSED[name]
    const { address, service, servicePort } = await startAll(name, edit)
    expect((await fetch(`${address}/hello`)).status).toBe(200)
    await stop(service)
    for (const _ of [1, 2, 3]) expect((await fetch(`${address}/hello`)).status).toBe(status)
    await startService(servicePort)
    await vi.waitFor(async () => expect((await fetch(`${address}/hello`)).status).toBe(200), { timeout: 20_000 })
  })

  test('answers 500, never 429, if the service does not trust it; the service logs the fix', async () => {
    const { address, service } = await startAll(name, undefined, [])
    for (const path of ['/hello', '/hello', '/hello', '/other']) {
      expect((await fetch(`${address}${path}`)).status, path).toBe(500)
    }
    const logged = service
      .output()
      .stderr.trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
    const fix = 'add it to --trusted-proxies (SLUICE_TRUSTED_PROXIES): --trusted-proxies 127.0.0.1'
    expect(logged).toMatchObject([
      { level: 'warn', code: 'PEER_UNTRUSTED', peer: '127.0.0.1', fix: expect.stringContaining(fix) },
    ])
    const metrics = await (await fetch(`${service.address}/metrics`)).text()
    expect(metrics).toContain('sluice_forward_auth_errors_total{code="PEER_UNTRUSTED"} 4')
  })
})
