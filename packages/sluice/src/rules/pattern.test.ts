import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LimiterError } from '../errors.ts'
import { parseRules } from './parse.ts'
import { patternFix } from './pattern.ts'

/** The suggested pattern: the last quoted text of a fix. */
function suggestionIn(fix: string): string | undefined {
  return /"([^"]*)"$/.exec(fix)?.[1]
}

function fixOf(pattern: string): string | undefined {
  try {
    parseRules([{ rule_id: 'a', limit: 1, window: '1m', endpoint_pattern: pattern }])
    return undefined
  } catch (error) {
    return error instanceof LimiterError ? error.fieldErrors[0]?.fix : String(error)
  }
}

describe('a suggested pattern is valid', () => {
  test.each([
    // Regular expressions.
    ['^/api/v1/.*$', '/api/v1/**'],
    ['^/api/v1/.+', '/api/v1/**'],
    ['/api/.*', '/api/**'],
    ['^/api/(.*)', '/api/**'],
    ['^\\/api\\/v1\\/users$', '/api/v1/users'],
    ['/users/\\d+', '/users/*'],
    ['^/users/(\\d+)/posts$', '/users/*/posts'],
    ['/users/[0-9]+', '/users/*'],
    ['^/users/[^/]+/posts/?$', '/users/*/posts'],
    ['/users/([^/]+)', '/users/*'],
    ['^/users/(?<id>\\d+)$', '/users/:id'],
    ['^/users/(?P<id>[^/]+)/x', '/users/:id/x'],
    ['/(users|posts)/new', '/*/new'],
    ['^/(?:a|b)(?:/.*)?$', '/*/**'],
    ['^/v[12]/items$', '/*/items'],
    ['/files/.*\\.png$', '/files/**'],
    ['/a/.*/b', '/a/*/b'],
    ['/items/\\w{3,8}', '/items/*'],
    ['^.*$', '/**'],
    ['.*', '/**'],
    ['^/$', '/'],
    ['(?i)^/api/x$', '/api/x'],
    ['/colou?r$', '/*'],
    ['[', '/*'],
    ['\\', '/*'],
    // Parameters in the notation of other routers.
    ['/users/{id}', '/users/:id'],
    ['/users/{id:[0-9]+}/x', '/users/:id/x'],
    ['/users/<int:id>', '/users/:id'],
    ['/users/<id>', '/users/:id'],
    ['/users/:id(\\d+)', '/users/:id'],
    ['/users/:', '/users/:id'],
    ['/:a/:', '/:a/:id'],
    // Wildcards in unsupported positions.
    ['/api/**/users', '/api/**'],
    ['/files/*.png', '/files/*'],
    ['/files/a*', '/files/*'],
    ['/files/***', '/files/*'],
    // Paths in another notation.
    ['api/x', '/api/x'],
    ['api//x/', '/api/x'],
    ['api/*.json', '/api/*'],
    ['/a/../b', '/b'],
    ['/a?b=c', '/a'],
    ['/a b', '/a%20b'],
    ['/a;v=1/b', '/a/b'],
    ['https://example.org/a/b', '/a/b'],
    ['example.org/a/{id}', '/example.org/a/:id'],
  ])('%s: %s', (pattern, suggestion) => {
    const fix = fixOf(pattern)
    expect(suggestionIn(fix ?? '')).toBe(suggestion)
    expect(fixOf(suggestion)).toBeUndefined()
  })

  test('for any input', () => {
    const pieces = [
      '/',
      '^',
      '$',
      '.*',
      '(',
      ')',
      '[',
      ']',
      '{',
      '}',
      '*',
      '**',
      ':',
      '\\',
      '|',
      '?',
      '+',
      ';',
      '%',
      'a',
      '<',
      '>',
      '.',
    ]
    const patterns = fc.oneof(
      fc
        .array(fc.constantFrom(...pieces, '\\d+', '%2f', '..', 'é'), { minLength: 1, maxLength: 12 })
        .map((all) => all.join('')),
      fc.string({ minLength: 1 }),
    )
    fc.assert(
      fc.property(patterns, (pattern) => {
        const fix = patternFix(pattern)
        if (fix !== undefined) expect(patternFix(suggestionIn(fix) ?? 'none'), `${pattern} → ${fix}`).toBeUndefined()
      }),
      { numRuns: 3000 },
    )
  })

  test('takes time linear in the length of the pattern', () => {
    for (const piece of ['(', '[', '{', '(?<a>', '\\', ':(', '<']) {
      const startedMs = performance.now()
      patternFix(piece.repeat(100_000))
      expect(performance.now() - startedMs, piece).toBeLessThan(2000)
    }
  })
})
