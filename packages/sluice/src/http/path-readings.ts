// What a router may take a request target for. Routers differ: some ignore case, some resolve dots, some read `\` as
// `/`, some drop `;parameters` or an authority. A rule holds for a target if it holds for any of its readings, so none
// of these ways around a rule exists; a target that is written plainly has one reading. Errs towards limiting too
// much.

import { canonicalPath, isPlainPath, normalEscapes, pathEnd, pathStart } from './path.ts'

export type PathReadings = {
  /** The one that buckets are named by: the most that any router here makes equal. */
  readonly key: string
  /** All of them, the key included, without doubles. */
  readonly all: readonly string[]
}

type Reader = (path: string) => string

const slashes: Reader = (path) => path.replace(/%5C|%2F/g, '/')
/** WHATWG URLs and Node's url.parse: a backslash as it stands, not an escaped one. */
const backslashes: Reader = (path) => path.replaceAll('\\', '/')
const withoutAuthority: Reader = (path) => path.replace(/^\/\/[^/]*/, '')
const withoutUser: Reader = (path) => path.replace(/^\/\/[^/@]+@[^/]*/, '')
const withoutParameters: Reader = (path) => path.replace(/;[^/]*/g, '')
/** Fastify's `useSemicolonDelimiter`, the default before version 5: a query begins at `;` too. */
const untilSemicolon: Reader = (path) => path.replace(/;.*$/s, '')
const singleSlashes: Reader = (path) => path.replace(/\/{2,}/g, '/')
const withoutLastSlash: Reader = (path) => (path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path)

/** Each may be applied or not: to the text as it stands, then to the one with normal escapes. */
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
  // A proxy such as nginx merges slashes before it resolves dots. Routers see an empty name behind a slash it leaves.
  const merged = canonicalPath(normalised(first))
  const slash = LEAVES_SLASH.test(first) ? '/' : ''
  const proxied = [key, merged, untilSemicolon(merged)].flatMap((path) => [path, withoutLastSlash(path) + slash])
  return { key, all: [...new Set([...proxied, ...all].map(rooted))] }
}

/** The last segment is empty, or one of dots. */
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

/** Absolute form that all routers read alike. */
const ABSOLUTE_FORM = /^https?:\/\/[^/?#]+\//

/** Candidate paths of a target. The first one determines the key. */
function targetPaths(target: string): string[] {
  const start = pathStart(target)
  // Node's url.parse, and so Express and Koa, drops blanks at both ends, of which bytes above 127 may be some.
  const paths = [target.slice(start, pathEnd(target, start)).trim()]
  const slash = target.indexOf('/', target.indexOf('://') + 3)
  // `http://host?x/path`: Fastify looks for the first slash behind the authority, wherever it stands.
  if (start > 0 && slash > start) paths.push(target.slice(slash, pathEnd(target, slash)))
  if (target.startsWith('/') || ABSOLUTE_FORM.test(target)) return paths
  // `*login`, `?login`: Fastify never compares the first character with the slash of a route.
  const unchecked = `/${target.slice(1, pathEnd(target, 1))}`.trim()
  // HTTP/1.1 servers accept a star only, so that reading names the bucket. Other targets are paths without their slash.
  return target.startsWith('*') ? [unchecked, ...paths] : [...paths, unchecked]
}

/** Case as in Unicode, also of escaped letters; escapes themselves keep their upper case. */
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

/** RFC 3986, 5.2.4: a dot segment at the end leaves a slash. */
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
