import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { canonicalPath } from './path.ts'

const CLASSES: Readonly<Record<string, readonly string[]>> = {
  '/': [
    '',
    '/',
    '//',
    '/.',
    '/..',
    '/../..',
    '/?a=b',
    '?a=/b',
    '#',
    '/#x',
    'http://host',
    'http://host/',
    'HTTP://h?x=/y',
    '%2e',
  ],
  '/api/messages': [
    '/api/messages',
    'api/messages',
    '/api/messages/',
    '/api/messages//',
    '//api/messages',
    '/api//messages',
    '/api///messages',
    '/./api/messages',
    '/api/./messages',
    '/api/x/../messages',
    '/api/x//../messages',
    '/../api/messages',
    '/api/messages/.',
    '/api/messages/x/..',
    '/api/%6dessages',
    '/%61%70%69/messages',
    '/api/%2E/messages',
    '/api/x/%2e%2e/messages',
    '/api/x/.%2E/messages',
    '/api/messages?',
    '/api/messages?x=1',
    '/api/messages/?x=/../y',
    '/api/messages#top',
    '/api/messages#?x',
    'http://host/api/messages',
    'https://user@host:8443//api/messages/?x=http://other/path',
  ],
  '/next': ['/next?to=http://host/path', 'next#http://host/path'],
  '/host/path': ['//host/path'],
  '/.well-known/x': ['/.well-known/x', '/%2ewell-known/x', '/.well-known/x/'],
  '/...': ['/...', '/%2e%2e%2E'],
  '/a.b/c..': ['/a.b/c..', '/a%2Eb/c..'],
  '/a%2Fb': ['/a%2Fb', '/a%2fb', '/a%2fb/'],
  '/a/b': ['/a/b'],
  '/API/messages': ['/API/messages', '/%41PI/messages'],
  '/%2541': ['/%2541', '/%25%34%31'],
  '/%2541/%25': ['/%2541/%', '/%%341/%25'],
  '/%25zz': ['/%zz', '/%25zz'],
  '/a%00b': ['/a\0b', '/a%00b'],
  '/a%0D%0Ab': ['/a\r\nb', '/a%0d%0ab'],
  '/a%20b': ['/a b', '/a%20b'],
  '/%5C..%5Cb': ['/\\..\\b', '/%5c..%5cb'],
  '/caf%C3%A9': ['/café', '/caf%c3%a9'],
  '/%F0%9F%98%80': ['/😀', '/%f0%9f%98%80'],
  '/%EF%BF%BD': ['/\ud83d', '/\ude00', '/\ufffd'],
  "/!$&'()*+,;=:@-._~": ["/!$&'()*+,;=:@-._~", "/!$&'()*+,;=:@%2d%2E%5f%7E"],
  '/*': ['*', '/*'],
}

describe('every spelling of a path gives one text', () => {
  const rows = Object.entries(CLASSES).flatMap(([canonical, texts]) => texts.map((text) => [text, canonical] as const))
  test.each(rows)('%j → %s', (text, canonical) => expect(canonicalPath(text)).toBe(canonical))
})

const segment = fc.oneof(
  fc.constantFrom(
    '.',
    '..',
    '%2e',
    '.%2E',
    'a',
    'B',
    'a%2fb',
    '%61',
    '%',
    '%4',
    '%zz',
    '%%34%31',
    'é',
    ' ',
    '"',
    'x;y=1',
    '\0',
  ),
  fc.string({ unit: 'binary', maxLength: 8 }),
)
const anyPath = fc.array(segment, { maxLength: 8 }).map((segments) => `/${segments.join('/')}`)

describe('for any text', () => {
  test('a canonical path is unchanged', () => {
    fc.assert(
      fc.property(fc.oneof(anyPath, fc.string({ unit: 'binary' })), (text) => {
        const canonical = canonicalPath(text)
        expect(canonicalPath(canonical)).toBe(canonical)
      }),
      { numRuns: 2000 },
    )
  })

  test('the result is printable ASCII that starts with one slash and has no dot segment', () => {
    fc.assert(
      fc.property(anyPath, (text) => {
        const canonical = canonicalPath(text)
        expect(canonical).toMatch(/^\/[!-~]*$/)
        expect(canonical).not.toMatch(/\/\/|\/\.{1,2}(\/|$)|[?#\\"<>]|.\/$/)
      }),
    )
  })

  test('escapes of unreserved characters, doubled slashes, dot segments and a query change nothing', () => {
    const word = fc.stringMatching(/^[a-zA-Z0-9_~-]{1,8}$/)
    const escaped = (text: string, upper: boolean) =>
      [...text].map((c) => `%${c.charCodeAt(0).toString(16)[upper ? 'toUpperCase' : 'toLowerCase']()}`).join('')
    fc.assert(
      fc.property(
        fc.array(fc.tuple(word, fc.nat(5)), { minLength: 1, maxLength: 6 }),
        fc.webQueryParameters(),
        (parts, query) => {
          const variants = parts.map(([text, how]) => {
            return (
              [text, escaped(text, true), escaped(text, false), `/${text}`, `./${text}`, `x/%2e./${text}`][how] ?? text
            )
          })
          const plain = `/${parts.map(([text]) => text).join('/')}`
          expect(canonicalPath(`/${variants.join('/')}/?${query}`)).toBe(plain)
        },
      ),
    )
  })

  test('agrees with the path of a WHATWG URL', () => {
    fc.assert(
      fc.property(anyPath, (text) => {
        // URLs drop tabs and line breaks, read \ as / and keep empty segments: rules of browsers, not of HTTP.
        fc.pre(!/[\t\n\r\\?#]|\/\//.test(text))
        expect(canonicalPath(new URL(`http://host${text}?`).pathname)).toBe(canonicalPath(text))
      }),
      { numRuns: 2000 },
    )
  })
})

// Superlinear time would exceed the timeout of the test.
test('a path of 300,000 awkward characters takes linear time', () => {
  for (const unit of ['/..', '%', '//', '/%2e', 'a://', '\ud83d']) {
    expect(canonicalPath(`/${unit.repeat(300_000 / unit.length)}`)).toMatch(/^\//)
  }
})
