import { expect, test } from 'vitest'
import { prefersText } from './accept.ts'

test.each([
  [undefined, false],
  ['', false],
  ['*/*', false],
  ['application/json', false],
  ['application/problem+json, text/plain', false],
  ['application/json, text/plain, */*', false],
  ['text/plain', true],
  ['TEXT/*', true],
  ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', true],
  ['text/plain;q=0.5, application/json;q=0.4', true],
  ['text/plain;q=0.5, application/*;q=0.6', false],
  ['text/plain;q=0', false],
  ['text/plain;q=abc, */*', false],
  ['text/css', false],
  [',;,;q=;=', false],
])('Accept: %s: text? %s', (accept, text) => expect(prefersText(accept)).toBe(text))
