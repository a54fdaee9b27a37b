// Reads a rule file, YAML or JSON. Reports all errors together, each with file, line, field, value and fix. Size,
// aliases and depth are bounded, so that no file can block the process for long or exhaust its memory.

import { readFileSync, statSync } from 'node:fs'
import { type FieldError, inSlices, LimiterError, mapped, parseRules, type Rule } from 'sluice'
import { shown } from '../problems/shown.ts'
import { isPrintable } from '../text/escaped.ts'
import { readJson, readYaml, type SourceText, utf8Text } from './source-text.ts'

/** Size limit of a rule file and of an imported rule set. */
export const RULE_SET_BYTES_MAX: number = 8 * 1024 * 1024

/** Path of a rule file, or content with a name for messages. */
export type RuleInput = string | { readonly name: string; readonly bytes: Uint8Array }

export function inputName(input: RuleInput): string {
  return typeof input === 'string' ? input : input.name
}

export function isJson(input: RuleInput): boolean {
  return inputName(input).endsWith('.json')
}

/** Throws RULE_INVALID with every field error. */
export function readRuleFile(input: RuleInput): Rule[] {
  return useRuleFile(input, (rules) => rules)
}

/** Reads the file and calls `use` with its rules. Errors of `use` get line numbers as well. */
export function useRuleFile<T>(input: RuleInput, use: (rules: Rule[]) => T): T {
  const source = readRuleSource(input)
  if (source.errors.length > 0) throw ruleFileError(inputName(input), source.errors, source.lineOf)
  try {
    const rules = parseRules(source.value)
    const unprintable = rules.flatMap(unprintableTexts)
    if (unprintable.length > 0) throw ruleFileError(inputName(input), unprintable, source.lineOf)
    return use(rules)
  } catch (error) {
    if (!(error instanceof LimiterError) || error.code !== 'RULE_INVALID') throw error
    throw ruleFileError(inputName(input), error.fieldErrors, source.lineOf)
  }
}

/**
 * The texts of the rule that would change what people see, or that no database can store. Checked where rules are
 * entered (HTTP, rule files, etcd), so that stored ones stay active.
 */
export function unprintableTexts(rule: Rule): FieldError[] {
  return Object.entries(rule).flatMap(([name, value]) => {
    const text = JSON.stringify(value) ?? ''
    const isUnpaired = /(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(text)
    if (isPrintable(text) && !isUnpaired) return []
    const fix =
      'remove control characters, direction overrides, line separators, invisible characters and unpaired surrogates'
    return [{ field: `${rule.rule_id}.${name}`, value, fix }]
  })
}

/** Throws RULE_INVALID with every unprintable text. */
export async function requirePrintable(rules: readonly Rule[]): Promise<void> {
  const fieldErrors = (await inSlices(mapped(rules, unprintableTexts))).flat()
  if (fieldErrors.length === 0) return
  const lines = fieldErrors.map(({ field, fix }) => `${field}: ${fix}`)
  throw new LimiterError('RULE_INVALID', lines.join('\n'), { fieldErrors })
}

/** Returns the content of a rule file, not validated. Throws RULE_INVALID if it cannot be read. */
export function readRuleSource(input: RuleInput): SourceText {
  const text = typeof input === 'string' ? readText(input) : textOf(input.name, input.bytes.length, () => input.bytes)
  return isJson(input) ? readJson(text) : readYaml(text)
}

/** Splits the message of an error into one line per field error. */
export function errorLines(error: LimiterError): string[] {
  return error.message.replace(/^\[\w+\] /, '').split('\n')
}

export function readText(path: string): string {
  try {
    const found = statSync(path)
    const { size } = found
    // A pipe would block the process until it is written to, and a device may never end.
    if (!found.isFile() && !found.isDirectory()) throw new Error('not a regular file')
    return textOf(path, size, () => readFileSync(path))
  } catch (error) {
    if (error instanceof LimiterError) throw error
    const why = error instanceof Error ? error.message : String(error)
    throw ruleFileError(path, [{ field: 'file', value: path, fix: `give a readable file: ${why}` }])
  }
}

function textOf(name: string, size: number, read: () => Uint8Array): string {
  const text = size <= RULE_SET_BYTES_MAX ? utf8Text(read()) : undefined
  if (text !== undefined) return text
  const value = `${size} bytes`
  const fix = size <= RULE_SET_BYTES_MAX ? 'save it as UTF-8' : `give a file of at most ${RULE_SET_BYTES_MAX} bytes`
  throw ruleFileError(name, [{ field: 'file', value, fix }])
}

/** RULE_INVALID with the line of each field error. */
export function ruleFileError(
  path: string,
  fieldErrors: readonly FieldError[],
  lineOf?: (field: string) => number | undefined,
): LimiterError {
  const lines = fieldErrors.map((one) => errorLine(fileAndLine(path, lineOf?.(one.field)), one))
  return new LimiterError('RULE_INVALID', lines.join('\n'), { fieldErrors })
}

/** `rules.yaml:7` */
export function fileAndLine(path: string, line: number | undefined): string {
  return line === undefined ? path : `${path}:${line}`
}

/** `limit: `, or nothing for `line 7`, a syntax error, if the location names the line. */
export function fieldPrefix(location: string, field: string): string {
  const [, line] = /^line (\d+)$/.exec(field) ?? []
  return line !== undefined && `${location}:`.includes(`:${line}:`) ? '' : `${field}: `
}

/** One field error as text: location, field, fix and value. */
export function errorLine(location: string, { field, value, fix }: FieldError): string {
  return `${location}: ${fieldPrefix(location, field)}${fix} (got ${JSON.stringify(shown(value)) ?? 'nothing'})`
}
