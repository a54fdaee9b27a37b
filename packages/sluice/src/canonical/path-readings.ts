// Readings of a request target: the paths that routers may take it for. Routers differ: some ignore case, some resolve
// dots, some read `\` as `/`, some drop `;parameters` or an authority. A rule matches a target if it matches any
// reading, so none of these bypasses a rule. A plain path has one reading. Errs towards limiting too much.

import { canonicalPath, isPlainPath, normalEscapes, pathEnd, pathStart } from './path.ts'

export type PathReadings = {
  /** The reading used in bucket keys: merges everything that any of these routers treats as equal. */
  readonly key: string
  /** All readings, the key included, without duplicates. */
  readonly all: readonly string[]
}

type Reader = (path: string) => string

const slashes: Reader = (path) => path.replace(/%5C|%2F/g, '/')
/** WHATWG URLs and url.parse of Node.js: literal backslashes, not escaped ones. */
const backslashes: Reader = (path) => path.replaceAll('\\', '/')
const withoutAuthority: Reader = (path) => path.replace(/^\/\/[^/]*/, '')
const withoutUser: Reader = (path) => path.replace(/^\/\/[^/@]+@[^/]*/, '')
const withoutParameters: Reader = (path) => path.replace(/;[^/]*/g, '')
/** Fastify's `useSemicolonDelimiter`, the default before version 5: `;` starts the query, too. */
const untilSemicolon: Reader = (path) => path.replace(/;.*$/s, '')
const singleSlashes: Reader = (path) => path.replace(/\/{2,}/g, '/')
const withoutLastSlash: Reader = (path) => (path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path)

/** Each reader may or may not apply: the first list to the raw text, the second after escapes are normalised. */
const RAW_CHOICES: readonly Reader[] = [backslashes, untilSemicolon]
const CHOICES: readonly Reader[] = [
  ...[slashes, withoutAuthority, withoutParameters],
  ...[resolved, singleSlashes, withoutLastSlash],
]

export function pathReadings(target: string): PathReadings {
  if (isPlainPath(target)) return oneReading(target)
  const paths = targetPaths(target)
  const [first = '/'] = paths
  if (paths.length === 1 && isPlainPath(first)) return oneReading(first)
  const key = canonicalPath(withoutParameters(withoutUser(normalised(backslashes(first.replace(/%5C/gi, '\\'))))))
  const all = read([...read(paths, RAW_CHOICES)].map(normalised), CHOICES)
  // A proxy such as nginx merges slashes before it resolves dots, and may leave a trailing slash.
  const merged = canonicalPath(normalised(first))
  const slash = LEAVES_SLASH.test(first) ? '/' : ''
  const proxied = [key, merged, untilSemicolon(merged)].flatMap((path) => [path, withoutLastSlash(path) + slash])
  return { key, all: [...new Set([...proxied, ...all].map(rooted))] }
}

/** The last segment is empty or a dot segment. */
const LEAVES_SLASH = /[/\\](?:\.|%2e){0,2}(?:;[^/\\]*)?$/i

function oneReading(path: string): PathReadings {
  const key = path.toLowerCase()
  return { key, all: [key] }
}

function read(paths: Iterable<string>, choices: readonly Reader[]): Set<string> {
  const all = new Set(paths)
  for (const choice of choices) for (const path of [...all]) all.add(choice(path))
  return all
}

function normalised(path: string): string {
  return foldedCase(normalEscapes(path))
}

/** Absolute form that all routers read the same way. */
const ABSOLUTE_FORM = /^https?:\/\/[^/?#]+\//

/** Candidate paths of a target. The first one determines the key. */
function targetPaths(target: string): string[] {
  const start = pathStart(target)
  // url.parse of Node.js, used by Express and Koa, trims whitespace at both ends, which includes some bytes above 127.
  const paths = [target.slice(start, pathEnd(target, start)).trim()]
  const slash = target.indexOf('/', target.indexOf('://') + 3)
  // `http://host?x/path`: Fastify looks for the first slash after the authority, even inside the query.
  if (start > 0 && slash > start) paths.push(target.slice(slash, pathEnd(target, slash)))
  if (target.startsWith('/') || ABSOLUTE_FORM.test(target)) return paths
  // `*login`, `?login`: Fastify does not compare the first character with the slash of a route.
  const unchecked = `/${target.slice(1, pathEnd(target, 1))}`.trim()
  // HTTP/1.1 servers accept only `*` here, so that reading is the key. Other targets are paths without a leading slash.
  return target.startsWith('*') ? [unchecked, ...paths] : [...paths, unchecked]
}

/** Unicode case folding, also of escaped letters; the escapes themselves stay in upper case. */
export function foldedCase(path: string): string {
  const lower = path.replace(/(?:%[89A-F][\dA-F])+/g, foldedEscapes).toLowerCase()
  return lower.includes('%') ? lower.replace(/%[\da-f]{2}/g, (code) => code.toUpperCase()) : lower
}

function foldedEscapes(escapes: string): string {
  try {
    return encodeURIComponent(decodeURIComponent(escapes).toUpperCase().toLowerCase())
  } catch {
    return escapes // not UTF-8, so no letters
  }
}

/** Resolves dot segments (RFC 3986, 5.2.4); one at the end leaves a slash. */
function resolved(path: string): string {
  if (!path.includes('/.') && !path.startsWith('.')) return path
  const segments: string[] = []
  const parts = path.split('/')
  for (const segment of parts) {
    if (segment === '..') segments.pop()
    else if (segment !== '.') segments.push(segment)
  }
  if (isDots(parts.at(-1))) segments.push('')
  return rooted(segments.join('/'))
}

function isDots(segment: string | undefined): boolean {
  return segment === '.' || segment === '..'
}

function rooted(path: string): string {
  return path.startsWith('/') ? path : `/${path}`
}
