import { createLimiter } from 'sluice'
import { describe, expect, test } from 'vitest'
import { createEndpointPattern } from './endpoint-pattern.ts'

const rule = (rule_id: string, endpoint_pattern?: string) => ({
  ...{ rule_id, limit: 100, window_seconds: 60, scope: 'per_ip' },
  ...(endpoint_pattern !== undefined && { endpoint_pattern }),
})

describe('the most specific pattern of the matched rules', () => {
  test.each([
    {
      name: 'more literal segments',
      patterns: ['/api/**', '/api/users/**'],
      path: '/api/users/1',
      is: '/api/users/**',
    },
    { name: 'more literals over parameters', patterns: ['/:a/:b', '/api/*'], path: '/api/users', is: '/api/*' },
    { name: 'more parameters', patterns: ['/api/**', '/api/:id/**'], path: '/api/7/x', is: '/api/:id/**' },
    { name: 'no `**`', patterns: ['/api/:id/**', '/api/:id'], path: '/api/7', is: '/api/:id' },
    { name: 'the first by name', patterns: ['/api/:name', '/api/:id'], path: '/api/7', is: '/api/:id' },
    { name: 'a pattern over none', patterns: [undefined, '/**', '/:a'], path: '/api', is: '/:a' },
    { name: 'none without a pattern', patterns: [undefined], path: '/api', is: 'none' },
    { name: 'none without a matched rule', patterns: ['/other'], path: '/api', is: 'none' },
  ])('$name', async ({ patterns, path, is }) => {
    for (const order of [patterns, [...patterns].reverse()]) {
      const limiter = createLimiter({ rules: order.map((pattern, index) => rule(`rule_${index}`, pattern)) })
      const decision = await limiter.check({ ip: '192.0.2.1', path })
      expect(createEndpointPattern(limiter)(decision)).toBe(is)
    }
  })

  test('follows a change of the rules', async () => {
    const limiter = createLimiter({ rules: [rule('a', '/old/**')] })
    const patternOf = createEndpointPattern(limiter)
    const before = await limiter.check({ ip: '192.0.2.1', path: '/old/x' })
    expect(patternOf(before)).toBe('/old/**')
    limiter.setRules([rule('a', '/new/**')])
    expect(patternOf(await limiter.check({ ip: '192.0.2.1', path: '/new/x' }))).toBe('/new/**')
    limiter.setRules([])
    expect(patternOf(before)).toBe('none')
  })
})
