// Path patterns: literal segments, `:name` or `*` for exactly one segment, `**` at the end for any number of them.
// No regular expressions: matching walks the path once (match.ts), so neither a pattern nor a path can be slow.

import { canonicalPath } from '../canonical/path.ts'
import { looksLikeRegex, suggestedPattern } from './pattern-suggestion.ts'

/** Matches everything. */
export const ANYWHERE = '/**'

export function segmentsOf(pattern: string): string[] {
  return pattern.split('/').slice(1)
}

export function isWild(segment: string): boolean {
  return segment === '*' || segment.startsWith(':')
}

/** Reason that no request can match a pattern, with the nearest valid pattern; undefined if the pattern is valid. */
export function patternFix(pattern: string): string | undefined {
  const why = patternError(pattern)
  if (why === undefined) return undefined
  const nearest = suggestedPattern(pattern)
  return `${why} "${patternError(nearest) === undefined ? nearest : ANYWHERE}"`
}

/** The error message up to the suggestion. */
function patternError(pattern: string): string | undefined {
  const segments = segmentsOf(pattern)
  const rest = segments.indexOf('**')
  const odd = segments.find((segment) => segment !== '*' && segment !== '**' && segment.includes('*'))
  const [, braced] = /\/\{(\w+)\}/.exec(pattern) ?? []
  // Requests are matched by their canonical path, so no other form of a pattern can match.
  const isCanonical = canonicalPath(pattern) === pattern
  const isPath = isCanonical && odd === undefined && (rest === -1 || rest === segments.length - 1)
  if (!isPath && looksLikeRegex(pattern)) return 'a pattern is a path, not a regular expression; write'
  if (!pattern.startsWith('/')) return 'start it with "/":'
  if (rest !== -1 && rest !== segments.length - 1) return '"**" may only be the last segment; write'
  if (odd !== undefined) return `"*" stands for a whole segment, not for part of one as in "${odd}"; write`
  if (segments.includes(':')) return 'give the parameter a name, as in ":id"; write'
  if (braced !== undefined) return `a parameter is written ":${braced}" here, not "{${braced}}"; write`
  if (pattern.includes(';')) return 'remove ";" and what follows it: some routers ignore it, so rules do too; write'
  return isCanonical ? undefined : 'no request has such a path; write'
}
