// A rule file, YAML or JSON → rules. What is wrong with it is told all at once: file and line, field, value and fix.
// Size, aliases and depth are bounded, so that no file can hold the process up for long or exhaust it.

import { readFileSync, statSync } from 'node:fs'
import { type Fault, LimiterError, parseRules, type Rule } from 'sluice'
import { shown } from '../problems/shown.ts'
import { readJson, readYaml, type SourceText, utf8Text } from './source-text.ts'

/** Of a rule file, and of a rule set that is imported. */
export const RULE_SET_BYTES_MAX: number = 8 * 1024 * 1024

/** The path of a rule file, or its content from elsewhere under the name that messages use. */
export type RuleInput = string | { readonly name: string; readonly bytes: Uint8Array }

export function inputName(input: RuleInput): string {
  return typeof input === 'string' ? input : input.name
}

export function isJson(input: RuleInput): boolean {
  return inputName(input).endsWith('.json')
}

/** Throws RULE_INVALID with every fault it found. */
export function readRuleFile(input: RuleInput): Rule[] {
  return useRuleFile(input, (rules) => rules)
}

/** Reads the file and hands its rules over. What `use` finds wrong with them is told with its line as well. */
export function useRuleFile<T>(input: RuleInput, use: (rules: Rule[]) => T): T {
  const source = readRuleSource(input)
  if (source.faults.length > 0) throw ruleFileError(inputName(input), source.faults, source.lineOf)
  try {
    return use(parseRules(source.value))
  } catch (error) {
    if (!(error instanceof LimiterError) || error.code !== 'RULE_INVALID') throw error
    throw ruleFileError(inputName(input), error.faults, source.lineOf)
  }
}

/** The value of a rule file and its lines, whatever it says. Throws RULE_INVALID when it cannot be read. */
export function readRuleSource(input: RuleInput): SourceText {
  const text = typeof input === 'string' ? readText(input) : textOf(input.name, input.bytes.length, () => input.bytes)
  return isJson(input) ? readJson(text) : readYaml(text)
}

/** The mistakes in a rule file, one per line, as people are told. */
export function mistakesIn(error: LimiterError): string[] {
  return error.message.replace(/^\[\w+\] /, '').split('\n')
}

export function readText(path: string): string {
  try {
    const found = statSync(path)
    const { size } = found
    // A pipe would hold the process up until somebody writes to it, and a device may never end.
    if (!found.isFile() && !found.isDirectory()) throw new Error('it is not a regular file')
    return textOf(path, size, () => readFileSync(path))
  } catch (error) {
    if (error instanceof LimiterError) throw error
    const why = error instanceof Error ? error.message : String(error)
    throw ruleFileError(path, [{ field: 'file', value: path, fix: `give a file that can be read: ${why}` }])
  }
}

function textOf(name: string, size: number, read: () => Uint8Array): string {
  const text = size <= RULE_SET_BYTES_MAX ? utf8Text(read()) : undefined
  if (text !== undefined) return text
  const value = `${size} bytes`
  const fix = size <= RULE_SET_BYTES_MAX ? 'save it as UTF-8' : `give a file of at most ${RULE_SET_BYTES_MAX} bytes`
  throw ruleFileError(name, [{ field: 'file', value, fix }])
}

/** Faults, told with the lines on which they are. */
export function ruleFileError(
  path: string,
  faults: readonly Fault[],
  lineOf?: (field: string) => number | undefined,
): LimiterError {
  const lines = faults.map((fault) => faultLine(placeOf(path, lineOf?.(fault.field)), fault))
  return new LimiterError('RULE_INVALID', lines.join('\n'), { faults })
}

/** `rules.yaml:7` */
export function placeOf(path: string, line: number | undefined): string {
  return line === undefined ? path : `${path}:${line}`
}

/** A fault as people are told: where, what, and how to mend it. */
export function faultLine(place: string, { field, value, fix }: Fault): string {
  return `${place}: ${field}: ${fix} (got ${JSON.stringify(shown(value)) ?? 'nothing'})`
}
