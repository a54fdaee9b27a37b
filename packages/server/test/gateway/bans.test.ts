// Bans with a status of their own, and the header of bypass tokens, in the gateway and in forward auth.

import { connect } from 'node:http2'
import { text } from 'node:stream/consumers'
import { parseCidr } from 'sluice/http'
import { describe, expect, test } from 'vitest'
import { filesOf, makeCertificate } from './certificate.ts'
import { type Echoed, echo, linesOf, openGateway, startUpstream } from './setup.ts'

const TWO = { rule_id: 'two', limit: 2, window: '1d', scope: 'per_ip' }
const LOOPBACK = [parseCidr('127.0.0.1')].flatMap((cidr) => cidr ?? [])
const KEY = { fact: 'ip', owner: '127.0.0.1', expiresAtMs: null }
const AUTH = '/api/v1/rate-limit/auth'
const NGINX = { 'x-original-uri': '/messages', 'x-original-method': 'GET', 'x-forwarded-for': '127.0.0.1' }

describe.each([
  ['of one rule', 'two', 'Banned by rule two.', TWO],
  ['of all rules', null, 'This client is banned.', { ...TWO, scope: 'global' }],
])('a ban %s', (_name, ruleId, detail, rule) => {
  test('with status 403 is a problem document without rate limit headers; the upstream gets nothing', async () => {
    const { url } = await startUpstream(() => expect.unreachable())
    const { address, apiAddress, limiter } = await openGateway([rule], { upstream: url, trustedProxies: LOOPBACK })
    limiter.changeOverrides({ set: [{ id: 'o1', ruleId, ...KEY, effect: { ban: 403 } }] })
    for (const response of [await fetch(address), await fetch(apiAddress + AUTH, { headers: NGINX })]) {
      expect(response.status).toBe(403)
      expect(response.headers.get('content-type')).toContain('application/problem+json')
      expect([...response.headers.keys()].filter((name) => /ratelimit|retry/.test(name))).toEqual([])
      const document = { type: 'about:blank', title: 'Forbidden', status: 403, detail, rule_id: ruleId }
      expect(await response.json()).toEqual({ ...document, request_id: expect.any(String) })
    }
    const asked = await fetch(`${apiAddress}${AUTH}?refused=429`, { headers: NGINX })
    expect(asked.status, 'the status that the proxy asks for').toBe(429)
  })

  test('with status 429 says that waiting does not help', async () => {
    const { url } = await startUpstream(() => expect.unreachable())
    const { address, limiter } = await openGateway([rule], { upstream: url })
    limiter.changeOverrides({ set: [{ id: 'o1', ruleId, ...KEY, effect: { ban: 429 } }] })
    const response = await fetch(address)
    expect([response.status, response.headers.has('retry-after')]).toEqual([429, false])
    expect(await response.json()).toMatchObject({ status: 429, rule_id: ruleId, retry_after: null })
  })
})

describe('the header of a bypass token', () => {
  const SENT = { 'X-Sluice-Bypass': 'secret', 'X-Own': 'secret', X_Sluice_Bypass: 'secret' }

  test.each([
    ['x-sluice-bypass', ['x-own']],
    ['x-own', ['x-sluice-bypass']],
    ['off', ['x-sluice-bypass', 'x-own']],
  ])('never reaches the upstream in any spelling: %s', async (bypassHeader, kept) => {
    const { url } = await startUpstream(echo)
    const { address } = await openGateway([TWO], { upstream: url, bypassHeader })
    const { rawHeaders } = (await (await fetch(address, { headers: SENT })).json()) as Echoed
    expect(['x-sluice-bypass', 'x-own'].filter((name) => linesOf(rawHeaders, name).length > 0)).toEqual(kept)
    expect(linesOf(rawHeaders, 'x_sluice_bypass')).toEqual([])
  })

  test('never reaches the upstream over HTTP/2', async () => {
    const { url } = await startUpstream(echo)
    const { pem, keyPem } = makeCertificate('gateway')
    const files = filesOf({ listenCert: pem, listenKey: keyPem })
    const { address } = await openGateway([TWO], { upstream: url, ...files })
    const session = connect(address, { rejectUnauthorized: false })
    const stream = session.request({ ':path': '/', 'x-sluice-bypass': 'secret' })
    const { rawHeaders } = JSON.parse(await text(stream)) as Echoed
    session.close()
    expect(linesOf(rawHeaders, 'x-sluice-bypass')).toEqual([])
  })
})
