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
const backslashes: Reader = (path) => path.replaceAll('%5C', '/')
const withoutAuthority: Reader = (path) => path.replace(/^\/\/[^/]*/, '')
const withoutUser: Reader = (path) => path.replace(/^\/\/[^/@]+@[^/]*/, '')
const withoutParameters: Reader = (path) => path.replace(/;[^/]*/g, '')
const singleSlashes: Reader = (path) => path.replace(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '')

/** Each may be applied or not: at most 32 readings of one target. */
const CHOICES: readonly Reader[] = [slashes, withoutAuthority, withoutParameters, resolved, singleSlashes]

export function pathReadings(target: string): PathReadings {
  if (isPlainPath(target)) {
    const key = target.toLowerCase()
    return { key, all: [key] }
  }
  const [first, ...others] = targetPaths(target).map((path) => foldedCase(normalEscapes(path)))
  const key = canonicalPath(withoutParameters(withoutUser(backslashes(first ?? '/'))))
  let all = new Set([first ?? '/', ...others])
  for (const choice of CHOICES) all = new Set([...all, ...[...all].map(choice)])
  return { key, all: [...new Set([key, ...[...all].map(rooted)])] }
}

/** Where the path of a target may begin and end. The first is what RFC 9112 says. */
function targetPaths(target: string): string[] {
  const start = pathStart(target)
  // Node's url.parse, and so Express and Koa, drops blanks at both ends, of which bytes above 127 may be some.
  const paths = [target.slice(start, pathEnd(target, start)).trim()]
  const slash = target.indexOf('/', target.indexOf('://') + 3)
  // `http://host?x/path`: Fastify looks for the first slash behind the authority, wherever it stands.
  if (start > 0 && slash > start) paths.push(target.slice(slash, pathEnd(target, slash)))
  return paths
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

function resolved(path: string): string {
  if (!path.includes('/.') && !path.startsWith('.')) return path
  const segments: string[] = []
  for (const segment of path.split('/')) {
    if (segment === '..') segments.pop()
    else if (segment !== '.') segments.push(segment)
  }
  return rooted(segments.join('/'))
}

function rooted(path: string): string {
  return path.startsWith('/') ? path : `/${path}`
}
