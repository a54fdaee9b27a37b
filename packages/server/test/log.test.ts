import { expect, test } from 'vitest'
import { keyHash } from '../src/log.ts'
import { captureLog, serveApp } from './service.ts'

const ONE = { rule_id: 'one', limit: 1, window_seconds: 60, scope: 'per_user' }

test('a refusal is logged at debug level, with keyed hashes instead of client keys', async () => {
  const { check, logged } = await serveApp([ONE])
  const request = { client_id: 'alice', ip_address: '203.0.113.42', api_key: 'k-1', tenant: 'acme' }
  await check(request)
  await check({ ...request, request_id: 'r-1' })
  const hash = keyHash('a secret of tests')
  const keys = { ip: hash('ip', '203.0.113.42'), user: hash('user', 'alice'), api_key: hash('api_key', 'k-1') }
  expect(logged).toMatchObject([
    { level: 'debug', event: 'check_refused', rule_id: 'one', request_id: 'r-1', limit: 1, keys },
  ])
  expect(JSON.stringify(logged)).not.toMatch(/alice|203\.0\.113|k-1|acme/)
  expect(new Date(String(logged[0]?.time)).toISOString()).toBe(logged[0]?.time)
})

test('a hash has 16 digits and depends on secret, fact and value; the default secret is random per process', () => {
  const hash = keyHash('one secret of tests')
  expect(hash('user', 'a')).toMatch(/^[\da-f]{16}$/)
  const others = [
    hash('user', 'b'),
    hash('ip', 'a'),
    keyHash('two secrets of tests')('user', 'a'),
    keyHash()('user', 'a'),
  ]
  expect(new Set([hash('user', 'a'), ...others, keyHash()('user', 'a')]).size).toBe(6)
})

test('an event below the log level is not written', () => {
  const { log, logged } = captureLog('warn')
  log.event('stopped', {})
  log.event('jwt_unverified', {})
  expect(logged).toMatchObject([{ level: 'warn', event: 'jwt_unverified', service: 'sluice' }])
})
