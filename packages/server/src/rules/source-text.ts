// Parses YAML or JSON, describes syntax errors, and finds the line of each field for error messages.

import type { FieldError } from 'sluice'
import { type Document, isMap, isPair, isScalar, isSeq, type Scalar, visit } from 'yaml'
import { jsonErrorPosition, lineAndColumn } from '../text/json-error-position.ts'
import { parseYaml, type YamlDocument, YamlTooComplex } from './yaml-document.ts'

export type SourceText = {
  readonly value: unknown
  /** Syntax errors. */
  readonly errors: readonly FieldError[]
  /** Line of a field such as `rules[3].limit`, or of its closest parent. */
  lineOf(field: string): number | undefined
}

/** Guards against alias expansion attacks. */
const ALIASES_MAX = 100
/** Cap on reported ambiguities. */
const ERRORS_MAX = 100
/** More than any error message shows of a line, which may be the whole text. */
const LINE_LENGTH_MAX = 200
/** Finding lines parses JSON again with the slow YAML parser, so longer texts get no line numbers. */
const LINES_LENGTH_MAX = 1_000_000

/** Undefined if the bytes are not UTF-8: replacement characters would silently change the text. */
export function utf8Text(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return undefined
  }
}

export function readYaml(text: string): SourceText {
  const parsed = parsedOrComplex(text)
  if (parsed instanceof YamlTooComplex) {
    const errors = [{ field: 'file', value: undefined, fix: parsed.message }]
    return { value: undefined, errors, lineOf: () => undefined }
  }
  const lineOf = (field: string) => lineOfField(parsed, field)
  const errors: FieldError[] = parsed.mistakes.map(({ line, why }) => {
    return { field: `line ${line}`, value: lineAt(text, line), fix: `fix the YAML syntax: ${why}` }
  })
  if (errors.length === 0) errors.push(...ambiguousFields(parsed.document))
  if (errors.length > 0) return { value: undefined, errors, lineOf }
  try {
    return { value: parsed.document.toJS({ maxAliasCount: ALIASES_MAX }), errors, lineOf }
  } catch (error) {
    return { value: undefined, errors: [aliasError(error)], lineOf }
  }
}

export function readJson(text: string): SourceText {
  let parsed: YamlDocument | YamlTooComplex | undefined
  const lineOf = (field: string) => {
    if (text.length > LINES_LENGTH_MAX) return undefined
    parsed ??= parsedOrComplex(text)
    return parsed instanceof YamlTooComplex ? undefined : lineOfField(parsed, field)
  }
  try {
    return { value: JSON.parse(text), errors: [], lineOf }
  } catch {
    return { value: undefined, errors: [jsonError(text, jsonErrorPosition(text))], lineOf }
  }
}

const QUOTE_FIX = 'or put it in quotes if it is a text'
/** Plain scalars that YAML 1.1 (Go, Ruby, PyYAML) and YAML 1.2 read differently. */
const AMBIGUOUS: readonly (readonly [RegExp, string])[] = [
  [/^[-+]?0[\d_]+$/, `write it without leading zeros (some parsers read octal), ${QUOTE_FIX}`],
  [/^[-+]?0(b[01_]+|o[0-7_]+|x[\da-f_]+)$/i, `write it as a decimal number, ${QUOTE_FIX}`],
  [/^[-+]?\d[\d,]*_[\d_]*$/, `write it without "_", ${QUOTE_FIX}`],
  [/^[-+]?\d[\d_]*(:[0-5]?\d)+(\.[\d_]*)?$/, `write it without ":" (some parsers read base 60), ${QUOTE_FIX}`],
  [/^[-+]?[\d.]+e[-+]?\d+$/i, `write all its digits, ${QUOTE_FIX}`],
  [/^[-+]?\.(inf|nan)$/i, `write a finite number, ${QUOTE_FIX}`],
  [/^(yes|no|on|off)$/i, 'put it in quotes if it is a text, or write true or false'],
]

/** Returns the fix for a scalar that other parsers read as another value, or that is too large to be exact. */
export function ambiguityOf({ type, source = '', value }: Scalar): string | undefined {
  if (type !== 'PLAIN') return undefined
  const isInexact = typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value)
  if (isInexact && /^[-+]?\d+$/.test(source)) return `write a number of at most 2^53, ${QUOTE_FIX}`
  return AMBIGUOUS.find(([pattern]) => pattern.test(source))?.[1]
}

/** Every scalar of a document that has an ambiguity: values, and names of fields. */
function ambiguousFields(root: Document): FieldError[] {
  const found: FieldError[] = []
  visit(root, {
    Scalar: (key, node, path) => {
      const fix = ambiguityOf(node)
      if (fix !== undefined) found.push({ field: fieldAt(path, key), value: node.source, fix })
      return found.length < ERRORS_MAX ? undefined : visit.BREAK
    },
  })
  return found
}

/** `rules[3].limit`; a file that is a list is the list `rules`. */
function fieldAt(path: readonly unknown[], key: unknown): string {
  let field = ''
  for (const [place, node] of [...path, undefined].entries()) {
    const parent = path[place - 1]
    if (isPair(parent))
      field += `${field === '' ? '' : '.'}${isScalar(parent.key) ? (parent.key.source ?? parent.key.value) : '?'}`
    else if (isSeq(parent)) {
      const index = node === undefined ? key : parent.items.indexOf(node)
      field += `${field === '' ? 'rules' : ''}[${index}]`
    }
  }
  return field || 'file'
}

function parsedOrComplex(text: string): YamlDocument | YamlTooComplex {
  try {
    return parseYaml(text, { merge: true })
  } catch (error) {
    if (error instanceof YamlTooComplex) return error
    throw error
  }
}

function aliasError(error: unknown): FieldError {
  const why = error instanceof Error ? error.message : String(error)
  return { field: 'file', value: undefined, fix: `use at most ${ALIASES_MAX} aliases, without deep nesting: ${why}` }
}

/** A syntax error at this position. */
export function jsonError(text: string, at: number): FieldError {
  const { line, column } = lineAndColumn(text, at)
  const why = at === text.length ? 'unexpected end' : `unexpected character in column ${column}`
  const start = at - column + 1
  const value = text
    .slice(start, start + LINE_LENGTH_MAX)
    .split('\n', 1)[0]
    ?.trim()
  return { field: `line ${line}`, value, fix: `fix the JSON syntax: ${why}` }
}

function lineAt(text: string, line: number): string | undefined {
  return text.split('\n', line)[line - 1]?.trim().slice(0, LINE_LENGTH_MAX)
}

function lineOfField({ document, lineOf }: YamlDocument, field: string): number | undefined {
  const line = /^line (\d+)$/.exec(field)?.[1]
  if (line !== undefined) return Number(line)
  let node: unknown = document.contents
  let found = lineOf(node)
  for (const step of stepsOf(field, node)) {
    const next = within(node, step)
    if (next === undefined) break
    found = lineOf(next.start) ?? found
    node = next.node
  }
  return found
}

/** `rules[3].limit` → 'rules', 3, 'limit'. If the file is a list, the first step is dropped. */
function stepsOf(field: string, root: unknown): (string | number)[] {
  const steps = [...field.matchAll(/\[(\d+)\]|[^.[\]]+/g)].map(([text, index]) => (index ? Number(index) : text))
  if (isSeq(root) && (steps[0] === 'rules' || typeof steps[1] === 'number')) return steps.slice(1)
  return typeof steps[1] === 'number' || steps[0] === 'rules' ? steps : ruleById(field, steps, root)
}

/** Some field errors name the rule by its id instead of its index. */
function ruleById(field: string, steps: (string | number)[], root: unknown): (string | number)[] {
  const list = isMap(root) ? root.get('rules', true) : root
  if (!isSeq(list)) return steps
  const index = list.items.findIndex((item) => isMap(item) && field.startsWith(`${item.get('rule_id')}.`))
  return index < 0 ? steps : [...(isMap(root) ? ['rules'] : []), index, ...steps.slice(-1)]
}

/** The value of a field or item, and the node that it starts with. */
function within(node: unknown, step: string | number): { node: unknown; start: unknown } | undefined {
  if (typeof step === 'number') {
    const item = isSeq(node) ? node.items[step] : undefined
    return item === undefined ? undefined : { node: item, start: item }
  }
  const isNamed = (key: unknown) => isScalar(key) && (String(key.value) === step || key.source === step)
  const pair = isMap(node) ? node.items.find(({ key }) => isNamed(key)) : undefined
  return pair === undefined ? undefined : { node: pair.value, start: pair.key }
}
