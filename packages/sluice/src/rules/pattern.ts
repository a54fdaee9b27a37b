// Path patterns: literal segments, `:name` or `*` for exactly one segment, `**` at the end for any number of them.
// No regular expressions: matching walks the path once (match.ts), so no pattern and no path can be slow.

import { canonicalPath } from '../http/path.ts'

/** Matches everything. */
export const ANYWHERE = '/**'

export function segmentsOf(pattern: string): string[] {
  return pattern.split('/').slice(1)
}

export function isWild(segment: string): boolean {
  return segment === '*' || segment.startsWith(':')
}

/** Why no request could ever match a pattern; undefined when one can. */
export function unreachable(pattern: string): string | undefined {
  if (!pattern.startsWith('/')) return `start it with "/": "/${pattern}"`
  const segments = segmentsOf(pattern)
  const rest = segments.indexOf('**')
  if (rest !== -1 && rest !== segments.length - 1) return '"**" may only be the last segment'
  const odd = segments.find((segment) => segment !== '*' && segment !== '**' && segment.includes('*'))
  if (odd !== undefined) return `"*" stands for a whole segment: write "*" instead of "${odd}"`
  if (segments.includes(':')) return 'give the parameter a name, as in ":id"'
  const [, braced] = /\/\{(\w+)\}/.exec(pattern) ?? []
  if (braced !== undefined) return `a parameter is written ":${braced}" here, not "{${braced}}"`
  if (pattern.includes(';')) return 'leave out ";" and what follows it: some routers do not look at it, so rules do not'
  // Requests are matched by their canonical path, so a pattern in another form would match none of them.
  const canonical = canonicalPath(pattern)
  return canonical === pattern ? undefined : `no request has such a path; write "${canonical}"`
}
