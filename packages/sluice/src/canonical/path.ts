// Canonical form of a path: escapes, slashes, dots and a query change neither the matching rules nor the bucket.
// Idempotent and linear. Keeps case, which rules ignore (path-readings.ts).

import { hexDigit } from './hex.ts'
import { percentEncoded } from './percent.ts'

const SLASH = 47
const DOT = 46
const QUESTION = 63
const HASH = 35
const PERCENT = 37
const SCHEME = /^[a-z][a-z\d+.-]*:\/\//i

const UNRESERVED = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~'
/** Characters that RFC 3986 allows literally in a path; all others are percent-encoded. */
const LITERAL = `${UNRESERVED}!$&'()*+,;=:@/`
const isLiteral = tableOf(LITERAL)

/** `/a/b` for `/a//./%62/?q#f` and for `http://host/a/b`; `/` for the empty path. */
export function canonicalPath(path: string): string {
  const end = canonicalEnd(path)
  if (end < 0) return rewritten(path)
  return end === path.length ? path : path.slice(0, end)
}

/** End of the path if it is canonical up to there (a slash, query or fragment may follow), else -1. */
function canonicalEnd(path: string): number {
  if (path.charCodeAt(0) !== SLASH) return -1
  let afterSlash = true
  let at = 1
  for (; at < path.length; at++) {
    const code = path.charCodeAt(at)
    if (code === QUESTION || code === HASH) break
    if (isLiteral[code] !== 1) return -1
    // May be a dot segment: left to `rewritten`.
    if (afterSlash && (code === SLASH || code === DOT)) return -1
    afterSlash = code === SLASH
  }
  return afterSlash && at > 1 ? at - 1 : at
}

function rewritten(path: string): string {
  const start = pathStart(path)
  const segments: string[] = []
  // Escapes first: `%2e%2e` is a dot segment too.
  for (const segment of normalEscapes(path.slice(start, pathEnd(path, start))).split('/')) {
    if (segment === '..') segments.pop()
    else if (segment !== '' && segment !== '.') segments.push(segment)
  }
  return `/${segments.join('/')}`
}

/** Whether a target is a path with a single spelling, apart from case. */
export function isPlainPath(target: string): boolean {
  return canonicalEnd(target) === target.length && !target.includes(';')
}

/** Index after scheme and authority; 0 unless the text is a whole URL. */
export function pathStart(path: string): number {
  const authority = SCHEME.exec(path)?.[0].length
  if (authority === undefined) return 0
  const slash = path.indexOf('/', authority)
  const end = pathEnd(path, authority)
  return slash < 0 ? end : Math.min(slash, end)
}

export function pathEnd(path: string, start: number): number {
  for (let at = start; at < path.length; at++) {
    const code = path.charCodeAt(at)
    if (code === QUESTION || code === HASH) return at
  }
  return path.length
}

/** Single pass, so decoded text is not decoded again: `%2541` stays `%2541`. */
export function normalEscapes(path: string): string {
  let out = ''
  let at = 0
  while (at < path.length) {
    const end = literalEnd(path, at)
    out += path.slice(at, end)
    at = end
    if (at === path.length) break
    const byte = escapedByte(path, at)
    const character = String.fromCodePoint(path.codePointAt(at) ?? 0)
    out += byte < 0 ? percentEncoded(character) : decodedOrUpper(byte)
    at += byte < 0 ? character.length : 3
  }
  return out
}

function literalEnd(path: string, start: number): number {
  let at = start
  while (at < path.length && isLiteral[path.charCodeAt(at)] === 1) at++
  return at
}

/** The byte of the escape (`%2F`) at `at`, or -1. A stray percent sign is then encoded like any other character. */
function escapedByte(path: string, at: number): number {
  if (path.charCodeAt(at) !== PERCENT) return -1
  const high = hexDigit(path.charCodeAt(at + 1))
  const low = hexDigit(path.charCodeAt(at + 2))
  return high < 0 || low < 0 ? -1 : high * 16 + low
}

/** Decodes characters that mean the same with and without an escape; `%2F` is not a slash. */
function decodedOrUpper(byte: number): string {
  if (isLiteral[byte] === 1 && byte !== SLASH) return String.fromCharCode(byte)
  return `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
}

function tableOf(characters: string): Uint8Array {
  const table = new Uint8Array(128)
  for (const character of characters) table[character.charCodeAt(0)] = 1
  return table
}
