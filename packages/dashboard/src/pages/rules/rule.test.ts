import { expect, test } from 'vitest'
import { endpointText, isTelling, limitText, type Proposal, type Rule, refusalText, stateText } from './rule.ts'

const RULE: Rule = {
  ...{ rule_id: 'login', endpoint_pattern: '/login', scope: 'per_ip', algorithm: 'token_bucket', mode: 'enforce' },
  enabled: true,
}

test.each([
  [{ limit: 60, window_seconds: 3600 }, '60/h'],
  [{ limit: 50_000, window_seconds: 86_400, burst: 60_000 }, '50,000/d (burst 60,000)'],
  [{ limit: 5, window_seconds: 10 }, '5/10s'],
  [{ limit: 5, window_seconds: 300 }, '5/5min'],
  [{ limit: 2, window_seconds: 300, algorithm: 'concurrency' as const }, '2 at once'],
  [{ limit: 'unlimited' as const }, 'unlimited'],
])('the limit %j is %s', (fields, text) => {
  expect(limitText({ ...RULE, ...fields })).toBe(text)
})

test('a preview claims no refusal count for less than 20 windows, and says which time it covers', () => {
  const perMinute = { ...RULE, limit: 60, window_seconds: 60 }
  expect(refusalText(perMinute, 17, 0)).toMatch(/cannot be told: .* the last 17 s, less than 20 windows of 60 s/)
  expect(refusalText(perMinute, 17, 3)).toMatch(/at least 3: .* the last 17 s/)
  expect(refusalText(perMinute, 1200, 0)).toBe('Alone, it would have refused 0 in the last 20 min.')
  const withPlan = { ...perMinute, by_plan: { pro: [{ limit: 9, window_seconds: 3600 }] } }
  expect([isTelling(perMinute, 1199), isTelling(perMinute, 1200), isTelling(withPlan, 1200)]).toEqual([
    false,
    true,
    false,
  ])
})

test('an endpoint has its methods', () => {
  expect(endpointText(RULE)).toBe('/login')
  expect(endpointText({ ...RULE, method: 'POST' })).toBe('POST /login')
  expect(endpointText({ ...RULE, method: ['GET', 'POST'] })).toBe('GET,POST /login')
})

test('a direct edit under guard is guarded, a proposal rolls out', () => {
  const proposal = { kind: 'edit', state: 'rolling_out', step: { index: 0, since: null, paused: null } } as Proposal
  expect(stateText(proposal)).toBe('guarded')
  expect(stateText({ ...proposal, kind: 'change' })).toBe('rolling out')
  expect(stateText({ ...proposal, state: 'done', step: null })).toBe('done')
})
