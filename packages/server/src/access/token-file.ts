// Tokens from a file (--tokens-file), for nodes without a database. An edit applies within a second; an invalid one is
// ignored. Any text of an invalid file may be a token, so messages describe names and values instead of showing them.

import { LimiterError, suggestion } from 'sluice'
import type { Log } from '../log.ts'
import { fileFingerprint, watchFile } from '../rules/file-watch.ts'
import { errorLines, fileAndLine, readText } from '../rules/rule-file.ts'
import { readJson, readYaml, type SourceText } from '../rules/source-text.ts'
import { readToken, TOKEN_FIX } from '../settings/access-settings.ts'
import { UNPRINTABLE } from '../text/escaped.ts'
import { ROLES, type Role } from './roles.ts'
import { type Token, tokenHash } from './token.ts'
import type { TokenRegistry } from './token-registry.ts'
import { TOKENS_MAX } from './token-table.ts'

type Item = Readonly<Record<string, unknown>>
/** `at`: field whose line is reported, if `field` must not name it. `got`: description of the invalid value. */
type Mistake = { readonly field: string; readonly fix: string; readonly at?: string; readonly got?: string | undefined }
/** Returns the fix for an invalid value. `others`: values of the preceding tokens. */
type CheckField = (value: unknown, others: readonly unknown[]) => string | undefined

const NAME = new RegExp(`^[^${UNPRINTABLE}]{1,100}$`, 'u')
const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/

const FIELDS: Readonly<Record<string, CheckField>> = {
  name: (name, others) => {
    if (typeof name !== 'string' || !NAME.test(name)) return 'give 1 to 100 characters without control characters'
    return others.includes(name) ? 'choose another name: names are unique' : undefined
  },
  role: (role) => (ROLES.some((known) => known === role) ? undefined : `use one of ${ROLES.join(', ')}`),
  token: (token, others) => {
    if (typeof token === 'number') return 'put it in quotes: it is read as a number'
    if (typeof token !== 'string' || readToken(token) === undefined) return TOKEN_FIX
    return others.includes(token) ? 'choose another token: an earlier entry has the same one' : undefined
  },
  expires_at: (end) => {
    const isGood = end == null || (typeof end === 'string' && TIME.test(end) && Number.isFinite(Date.parse(end)))
    return isGood ? undefined : 'give a time such as 2031-01-01T00:00:00Z'
  },
}

const QUOTE_FIX = 'put it in quotes: some parsers read it as a number or a boolean'

const SAFE_WORDS: readonly string[] = [...ROLES, ...Object.keys(FIELDS)]

/** Throws OPTION_INVALID with every mistake and its line. */
export function readTokenFile(path: string): Token[] {
  const source = sourceIn(path)
  // Parsers quote the text they reject, which may be a token: report the line only.
  const [first] = source.errors
  if (first !== undefined) {
    const isSyntax = /^(line \d+|file)$/.test(first.field)
    const fix = isSyntax ? `fix the ${path.endsWith('.json') ? 'JSON' : 'YAML'} syntax` : QUOTE_FIX
    throw invalid(path, source, [{ field: isSyntax ? 'file' : first.field.replace(/^rules/, 'tokens'), fix }])
  }
  const list = (source.value as { tokens?: unknown } | null | undefined)?.tokens ?? source.value
  if (!Array.isArray(list) || list.length > TOKENS_MAX)
    throw invalid(path, source, [{ field: 'tokens', fix: `give a list of at most ${TOKENS_MAX} tokens` }])
  const mistakes = list.flatMap((item: unknown, index) => {
    const inItem = (field: string) => `tokens[${index}]${field === '' ? '' : `.${field}`}`
    return mistakesOf(item, list.slice(0, index)).map(({ field, at = field, ...rest }) => {
      return { ...rest, field: inItem(field), at: inItem(at) }
    })
  })
  if (mistakes.length > 0) throw invalid(path, source, mistakes)
  return list.map(tokenOf)
}

/** Reads the file now and after every change. Throws if it is invalid at the start. */
export function followTokenFile(path: string, tokens: TokenRegistry, log: Log): { stop(): void } {
  const print = fileFingerprint(path)
  tokens.replace(readTokenFile(path))
  return watchFile(path, print, () => {
    try {
      tokens.replace(readTokenFile(path))
      log.event('tokens_applied', { file: path, tokens: tokens.size })
    } catch (error) {
      // Messages of other errors may quote the file.
      const reasons = error instanceof LimiterError ? errorLines(error) : ['the file cannot be read']
      log.event('tokens_rejected', { file: path, reasons })
    }
  })
}

function sourceIn(path: string): SourceText {
  try {
    const text = readText(path)
    return path.endsWith('.json') ? readJson(text) : readYaml(text)
  } catch (error) {
    if (!(error instanceof LimiterError)) throw error
    const fixes = error.fieldErrors.map(({ fix }) => ({ field: 'file', fix }))
    throw invalid(path, undefined, fixes)
  }
}

function mistakesOf(item: unknown, before: readonly unknown[]): Mistake[] {
  if (typeof item !== 'object' || item === null) return [{ field: '', fix: 'give an object with name, role and token' }]
  const names = Object.keys(FIELDS)
  const unknown = Object.keys(item).filter((field) => !names.includes(field))
  const wrong = Object.entries(FIELDS).flatMap(([field, check]) => {
    const got = (item as Item)[field]
    const others = before.map((other) => (other as Item | null)?.[field])
    const fix = check(got, others)
    return fix === undefined ? [] : [{ field, fix, got: field === 'token' ? undefined : described(got) }]
  })
  return [
    ...unknown.map((at) => ({ field: '', at, fix: `remove the unknown field${suggestion(at, names)}` })),
    ...wrong,
  ]
}

/** Shows values from a closed list of words; describes any other, which may be a misplaced token. */
function described(value: unknown): string | undefined {
  if (value === undefined) return undefined
  if (value === null || typeof value === 'boolean') return `${value}`
  if (typeof value === 'string') return SAFE_WORDS.includes(value) ? `"${value}"` : `a string of length ${value.length}`
  if (Array.isArray(value)) return `a list of length ${value.length}`
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

/** Expects an item without mistakes. */
function tokenOf(item: { name: string; role: Role; token: string; expires_at?: string | null }): Token {
  const { name, role, token, expires_at: end } = item
  const expiresAt = end == null ? null : new Date(end).toISOString()
  return { tokenId: `file:${name}`, name, role, hash: tokenHash(token), createdAt: '', expiresAt, revokedAt: null }
}

function invalid(path: string, source: SourceText | undefined, mistakes: readonly Mistake[]): LimiterError {
  const lines = mistakes.map(({ field, fix, got, at = field }) => {
    const line = field === 'file' ? source?.lineOf(source.errors[0]?.field ?? '') : source?.lineOf(at)
    const value = got === undefined ? '' : ` (got ${got})`
    return `  ${fileAndLine(path, line)}: ${field}: ${fix}${value}`
  })
  const fieldErrors = mistakes.map(({ field, fix, got }) => ({ field, value: got, fix }))
  return new LimiterError('OPTION_INVALID', lines.join('\n'), { fieldErrors })
}
