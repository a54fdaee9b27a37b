// Path patterns: literal segments, `:name` or `*` for exactly one segment, `**` at the end for any number of them.
// No regular expressions: matching walks the path once (match.ts), so no pattern and no path can be slow.

import { canonicalPath } from '../http/path.ts'
import { looksLikeRegex, suggestedPattern } from './pattern-suggestion.ts'

/** Matches everything. */
export const ANYWHERE = '/**'

export function segmentsOf(pattern: string): string[] {
  return pattern.split('/').slice(1)
}

export function isWild(segment: string): boolean {
  return segment === '*' || segment.startsWith(':')
}

/** Why no request could ever match a pattern, and the nearest one that can; undefined when one can. */
export function unreachable(pattern: string): string | undefined {
  const why = faultOf(pattern)
  if (why === undefined) return undefined
  const nearest = suggestedPattern(pattern)
  return `${why} "${faultOf(nearest) === undefined ? nearest : ANYWHERE}"`
}

/** Ends in the words before a suggestion. */
function faultOf(pattern: string): string | undefined {
  const segments = segmentsOf(pattern)
  const rest = segments.indexOf('**')
  const odd = segments.find((segment) => segment !== '*' && segment !== '**' && segment.includes('*'))
  const [, braced] = /\/\{(\w+)\}/.exec(pattern) ?? []
  // Requests are matched by their canonical path, so a pattern in another form would match none of them.
  const isCanonical = canonicalPath(pattern) === pattern
  const isPath = isCanonical && odd === undefined && (rest === -1 || rest === segments.length - 1)
  if (!isPath && looksLikeRegex(pattern)) return 'a pattern is a path, not a regular expression; write'
  if (!pattern.startsWith('/')) return 'start it with "/":'
  if (rest !== -1 && rest !== segments.length - 1) return '"**" may only be the last segment; write'
  if (odd !== undefined) return `"*" stands for a whole segment, not for a part as in "${odd}"; write`
  if (segments.includes(':')) return 'give the parameter a name, as in ":id"; write'
  if (braced !== undefined) return `a parameter is written ":${braced}" here, not "{${braced}}"; write`
  if (pattern.includes(';'))
    return 'leave out ";" and what follows it: some routers do not look at it, so rules do not; write'
  return isCanonical ? undefined : 'no request has such a path; write'
}
