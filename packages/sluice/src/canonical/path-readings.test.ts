import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { pathReadings } from './path-readings.ts'

describe('the key of a target', () => {
  test.each([
    ['/api/users', '/api/users'],
    ['/API/Users/', '/api/users'],
    ['http://host/API//./Users?x', '/api/users'],
    ['/caf%C3%89', '/caf%C3%A9'],
    ['/CAF\u00c9', '/caf%C3%A9'],
    ['/%ce%a3', '/%CF%83'],
    ['/a%FF/B', '/a%FF/b'],
    ['/a;v=1/b;w', '/a/b'],
    ['/api\\login#', '/api/login'],
    ['/a%2Fb', '/a%2Fb'],
    ['//user@host/login', '/login'],
    ['//host/login', '/host/login'],
    ['/login\u00a0', '/login'],
    ['', '/'],
    ['*', '/'],
    ['*login', '/login'],
    ['*Login/?x', '/login'],
    ['login', '/login'],
    ['?login', '/'],
    ['\u00a0/login', '/login'],
    ['ftp://host/login', '/login'],
  ])('%j is %s', (target, key) => expect(pathReadings(target).key).toBe(key))
})

/**
 * Up to three paths in a target; for each, two choices for the raw text and six after normalising escapes; five more
 * for proxies.
 */
const READINGS_MAX = 3 * 2 ** 8 + 5

test('a plain path has one reading, also with a query', () => {
  for (const path of ['/', '/a', '/API/users', '/a.b/c']) {
    expect(pathReadings(path).all).toEqual([path.toLowerCase()])
    expect(pathReadings(`${path}?x=/..//y;z`).all).toEqual([path.toLowerCase()])
  }
})

describe('among the readings of a target', () => {
  test.each([
    ['/files//', '/files/'],
    ['/files///', '/files/'],
    ['/files/x/..//', '/files/'],
    ['/files//..', '/files/'],
    ['/files/a/b//..//../', '/files/'],
    ['/users//posts/', '/users//posts'],
    ['/files/a;x/y', '/files/a'],
    ['/users/a%2fb\\posts', '/users/a%2Fb/posts'],
    ['*', '/*'],
    ['*files/7', '/files/7'],
    ['*/files/7', '/*/files/7'],
    ['xfiles/7', '/xfiles/7'],
    ['xfiles/7', '/files/7'],
    ['?files/7?x', '/files/7'],
    [';files/7;x', '/files/7'],
    ['ftp://host', '/tp:/host'],
  ])('%j is %s', (target, reading) => expect(pathReadings(target).all).toContain(reading))
})

describe('for any target', () => {
  const piece = fc.constantFrom('/', '\\', '.', '..', ';', 'a', 'B', '%2f', '%5C', '%', 'é', '@', '?', '#', '\u00a0')
  const first = fc.constantFrom('/', '/', '*', '?', 'x', '', 'http://h', 'ftp://h?')
  const rest = fc.array(piece, { maxLength: 24 })
  const target = fc.tuple(first, rest).map(([start, pieces]) => `${start}${pieces.join('')}`)

  test('the readings are bounded, start with a slash, and the key is among them', () => {
    fc.assert(
      fc.property(target, (text) => {
        const { key, all } = pathReadings(text)
        expect(all).toContain(key)
        expect(all.length).toBeLessThanOrEqual(READINGS_MAX)
        for (const reading of all) expect(reading).toMatch(/^\/[!-~]*$/)
      }),
      { numRuns: 2000 },
    )
  })

  test('the key of a key is the key itself, also in upper case', () => {
    fc.assert(
      fc.property(target, (text) => {
        const { key } = pathReadings(text)
        expect(pathReadings(key).key).toBe(key)
        expect(pathReadings(key.replaceAll(/(?<!%.?)[a-z]/g, (letter) => letter.toUpperCase())).key).toBe(key)
      }),
      { numRuns: 2000 },
    )
  })
})

// Superlinear time would exceed the timeout of the test.
test('a target of 16,000 awkward characters takes linear time', () => {
  for (const unit of ['/..', '%5c', '//', ';/', '/%2e', '\\', '%C3%89', '@']) {
    const text = unit.repeat(16_000 / unit.length)
    for (const start of ['/', '*', 'ftp://h?']) {
      expect(pathReadings(`${start}${text}`).all.length).toBeLessThanOrEqual(READINGS_MAX)
    }
  }
})
