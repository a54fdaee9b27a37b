// Everything that can be said about a rule file without running it: every mistake and every doubt, each with its line.

import { type Fault, LimiterError, parseRules } from 'sluice'
import { shown } from '../problems/shown.ts'
import { adviceOn } from './advice.ts'
import { offlineLimiter } from './offline-limiter.ts'
import { faultLine, placeOf, type RuleInput, readRuleSource } from './rule-file.ts'
import type { SourceText } from './source-text.ts'

/** Where a fault names a rule by its place in the list. */
const PLACE = /^rules\[(\d+)\]/

export type Finding = {
  readonly line: number | undefined
  readonly field: string
  readonly value: unknown
  readonly fix: string
}

export type Findings = {
  /** With one of these the rules are refused. */
  readonly mistakes: readonly Finding[]
  /** With these they do something else than their author thinks, probably. */
  readonly warnings: readonly Finding[]
  /** Of how many rules. */
  readonly rules: number
}

/** A file that cannot be read at all is a mistake too. */
export function lintRuleFile(input: RuleInput, nowMs: number): Findings {
  let source: SourceText
  try {
    source = readRuleSource(input)
  } catch (error) {
    if (!(error instanceof LimiterError)) throw error
    return { mistakes: error.faults.map((fault) => ({ line: undefined, ...fault })), warnings: [], rules: 0 }
  }
  const place = (fault: Fault) => findingOf(fault, source)
  if (source.faults.length > 0) return { mistakes: source.faults.map(place), warnings: [], rules: 0 }
  const list = listIn(source.value)
  const parsing = withRepeatedIds(
    faultsOf(() => parseRules(source.value)),
    list,
  )
  const wrong = new Set(parsing.map(({ field }) => indexIn(field)))
  // What can be said about good rules is said also when others are wrong, so that no mistake hides behind another.
  const good = list.flatMap((item, index) => (wrong.has(index) ? [] : [{ item, index }]))
  const rules = good.map(({ item }) => item)
  const compiling = faultsOf(() => offlineLimiter(rules).close())
  const warnings = adviceOn(parseRules(rules), nowMs).map(({ field, ...rest }) => {
    return { ...rest, field: field.replace(PLACE, (_, place: string) => `rules[${good[Number(place)]?.index}]`) }
  })
  return {
    mistakes: [...parsing, ...compiling].map(place).sort((a, b) => (a.line ?? 0) - (b.line ?? 0)),
    warnings: warnings.map(place),
    rules: list.length,
  }
}

/** `rules.yaml:7: error: rules[1].limit: give a whole number (got -5)`, as editors understand it. */
export function findingText(path: string, kind: string, finding: Finding): string {
  return faultLine(`${placeOf(path, finding.line)}: ${kind}`, finding)
}

function findingOf({ field, value, fix }: Fault, source: SourceText): Finding {
  return { line: source.lineOf(field), field, value: shown(value), fix }
}

function listIn(value: unknown): readonly unknown[] {
  const list = (value as { rules?: unknown } | null | undefined)?.rules ?? value
  return Array.isArray(list) ? list : []
}

function indexIn(field: string): number {
  return Number(PLACE.exec(field)?.[1] ?? Number.NaN)
}

/** The parser compares the ids of good rules only; here a rule may have other mistakes as well. */
function withRepeatedIds(faults: readonly Fault[], list: readonly unknown[]): Fault[] {
  const ids = list.map((item) => (item as { rule_id?: unknown } | null)?.rule_id)
  const known = new Set(faults.map(({ field }) => field))
  const repeated = ids.flatMap((id, index) => {
    const first = ids.indexOf(id)
    const field = `rules[${index}].rule_id`
    if (typeof id !== 'string' || first === index || known.has(field)) return []
    return [{ field, value: id, fix: `choose another: rules[${first}] has it` }]
  })
  return [...faults, ...repeated]
}

function faultsOf(work: () => unknown): readonly Fault[] {
  try {
    work()
    return []
  } catch (error) {
    if (error instanceof LimiterError && error.code === 'RULE_INVALID') return error.faults
    throw error
  }
}
