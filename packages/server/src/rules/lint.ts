// Checks a rule file without a node. Reports every error and warning with its line.

import { type FieldError, LimiterError, parseRules } from 'sluice'
import { shown } from '../problems/shown.ts'
import { lintWarnings } from './lint-warnings.ts'
import { offlineLimiter } from './offline-limiter.ts'
import { errorLine, fileAndLine, type RuleInput, readRuleSource, unprintableTexts } from './rule-file.ts'
import type { SourceText } from './source-text.ts'

/** A field that names a rule by its index in the list. */
const INDEXED = /^rules\[(\d+)\]/

export type LintFinding = {
  readonly line: number | undefined
  readonly field: string
  readonly value: unknown
  readonly fix: string
}

export type LintResult = {
  /** Errors: the rules are invalid. */
  readonly mistakes: readonly LintFinding[]
  /** The rules are valid, but probably not as intended. */
  readonly warnings: readonly LintFinding[]
  /** Number of rules in the file. */
  readonly rules: number
}

/** Reports an unreadable file as an error. */
export function lintRuleFile(input: RuleInput, nowMs: number): LintResult {
  let source: SourceText
  try {
    source = readRuleSource(input)
  } catch (error) {
    if (!(error instanceof LimiterError)) throw error
    return {
      mistakes: error.fieldErrors.map((fieldError) => ({ line: undefined, ...fieldError })),
      warnings: [],
      rules: 0,
    }
  }
  const withLine = (fieldError: FieldError) => findingOf(fieldError, source)
  if (source.errors.length > 0) return { mistakes: source.errors.map(withLine), warnings: [], rules: 0 }
  const list = listIn(source.value)
  const parsing = withDuplicateIds(
    fieldErrorsOf(() => parseRules(source.value)),
    list,
  )
  const invalid = new Set(parsing.map(({ field }) => indexIn(field)))
  // Valid rules are checked further even if others are invalid, so that no error hides another.
  const good = list.flatMap((item, index) => (invalid.has(index) ? [] : [{ item, index }]))
  const rules = good.map(({ item }) => item)
  const compiling = fieldErrorsOf(() => offlineLimiter(rules).close())
  const parsed = parseRules(rules)
  const unprintable = parsed.flatMap(unprintableTexts)
  const warnings = lintWarnings(parsed, nowMs).map(({ field, ...rest }) => {
    return { ...rest, field: field.replace(INDEXED, (_, index: string) => `rules[${good[Number(index)]?.index}]`) }
  })
  return {
    mistakes: [...parsing, ...compiling, ...unprintable].map(withLine).sort((a, b) => (a.line ?? 0) - (b.line ?? 0)),
    warnings: warnings.map(withLine),
    rules: list.length,
  }
}

/** `rules.yaml:7: error: rules[1].limit: give a whole number (got -5)`, a format that editors can parse. */
export function findingText(path: string, kind: string, finding: LintFinding): string {
  return errorLine(`${fileAndLine(path, finding.line)}: ${kind}`, finding)
}

function findingOf({ field, value, fix }: FieldError, source: SourceText): LintFinding {
  return { line: source.lineOf(field), field, value: shown(value), fix }
}

function listIn(value: unknown): readonly unknown[] {
  const list = (value as { rules?: unknown } | null | undefined)?.rules ?? value
  return Array.isArray(list) ? list : []
}

function indexIn(field: string): number {
  return Number(INDEXED.exec(field)?.[1] ?? Number.NaN)
}

/** Adds duplicate ids of invalid rules, because the parser compares valid rules only. */
function withDuplicateIds(errors: readonly FieldError[], list: readonly unknown[]): FieldError[] {
  const ids = list.map((item) => (item as { rule_id?: unknown } | null)?.rule_id)
  const known = new Set(errors.map(({ field }) => field))
  const duplicates = ids.flatMap((id, index) => {
    const first = ids.indexOf(id)
    const field = `rules[${index}].rule_id`
    if (typeof id !== 'string' || first === index || known.has(field)) return []
    return [{ field, value: id, fix: `choose another id: rules[${first}] has the same one` }]
  })
  return [...errors, ...duplicates]
}

function fieldErrorsOf(work: () => unknown): readonly FieldError[] {
  try {
    work()
    return []
  } catch (error) {
    if (error instanceof LimiterError && error.code === 'RULE_INVALID') return error.fieldErrors
    throw error
  }
}
