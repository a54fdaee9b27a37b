// Parses YAML or JSON, describes syntax errors, and finds the line of each field for error messages.

import type { FieldError } from 'sluice'
import {
  type Document,
  isMap,
  isPair,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
  type Scalar,
  visit,
} from 'yaml'
import { jsonErrorPosition } from '../text/json-error-position.ts'
import { isNestedTooDeep, NESTING_MAX } from './nesting.ts'

export type SourceText = {
  readonly value: unknown
  /** Syntax errors. */
  readonly errors: readonly FieldError[]
  /** Line of a field such as `rules[3].limit`, or of its closest parent. */
  lineOf(field: string): number | undefined
}

/** Guards against alias expansion attacks. */
const ALIASES_MAX = 100
/** A single mistake may cause a thousand parser errors. */
const ERRORS_MAX = 100
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
  if (isNestedTooDeep(text)) return { value: undefined, errors: [tooDeep()], lineOf: () => undefined }
  const { document, lines } = parse(text)
  const errors: FieldError[] = [...document.errors, ...document.warnings]
    .slice(0, ERRORS_MAX)
    .map(({ message, pos }) => {
      const { line } = lines.linePos(pos[0])
      return { field: `line ${line}`, value: lineAt(text, line), fix: `fix the YAML syntax: ${message}` }
    })
  const lineOf = (field: string) => lineOfField(document, lines, field)
  if (errors.length === 0) errors.push(...ambiguousFields(document).slice(0, ERRORS_MAX))
  if (errors.length > 0) return { value: undefined, errors, lineOf }
  try {
    return { value: document.toJS({ maxAliasCount: ALIASES_MAX }), errors, lineOf }
  } catch (error) {
    return { value: undefined, errors: [aliasError(error)], lineOf }
  }
}

export function readJson(text: string): SourceText {
  const lineOf = (field: string) => {
    if (text.length > LINES_LENGTH_MAX || isNestedTooDeep(text)) return undefined
    const { document, lines } = parse(text)
    return lineOfField(document, lines, field)
  }
  try {
    return { value: JSON.parse(text), errors: [], lineOf }
  } catch {
    return { value: undefined, errors: [jsonError(text)], lineOf }
  }
}

function parse(text: string): { document: Document; lines: LineCounter } {
  const lines = new LineCounter()
  // The parser would print warnings to stderr that quote the text, which may contain secrets.
  const options = { prettyErrors: false, merge: true, logLevel: 'error' } as const
  const document = parseDocument(text, { lineCounter: lines, ...options })
  return { document, lines }
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
  [/^(yes|no|on|off)$/i, `write true or false, ${QUOTE_FIX}`],
]

/** Returns the fix for a scalar that other parsers read as another value, or that is too large to be exact. */
function ambiguityOf({ type, source = '', value }: Scalar): string | undefined {
  if (type !== 'PLAIN') return undefined
  const isInexact = typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value)
  if (isInexact && /^[-+]?\d+$/.test(source)) return `write a number of at most 2^53, ${QUOTE_FIX}`
  return AMBIGUOUS.find(([pattern]) => pattern.test(source))?.[1]
}

/** Every scalar of a document, or of a part of it, that has an ambiguity. */
export function ambiguousFields(root: Document | Node): FieldError[] {
  const found: FieldError[] = []
  visit(root, {
    Scalar: (key, node, path) => {
      const fix = key === 'key' ? undefined : ambiguityOf(node)
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
    if (isPair(parent)) field += `${field === '' ? '' : '.'}${isScalar(parent.key) ? parent.key.value : '?'}`
    else if (isSeq(parent)) {
      const index = node === undefined ? key : parent.items.indexOf(node)
      field += `${field === '' ? 'rules' : ''}[${index}]`
    }
  }
  return field || 'file'
}

function tooDeep(): FieldError {
  return { field: 'file', value: undefined, fix: `nest at most ${NESTING_MAX} levels deep` }
}

function aliasError(error: unknown): FieldError {
  const why = error instanceof Error ? error.message : String(error)
  return { field: 'file', value: undefined, fix: `use at most ${ALIASES_MAX} aliases, without deep nesting: ${why}` }
}

function jsonError(text: string): FieldError {
  const at = jsonErrorPosition(text)
  const line = text.slice(0, at).split('\n').length
  const why =
    at === text.length ? 'unexpected end' : `unexpected character in column ${at - text.lastIndexOf('\n', at - 1)}`
  return { field: `line ${line}`, value: lineAt(text, line), fix: `fix the JSON syntax: ${why}` }
}

function lineAt(text: string, line: number): string | undefined {
  return text.split('\n', line)[line - 1]?.trim()
}

function lineOfField(document: Document, lines: LineCounter, field: string): number | undefined {
  const line = /^line (\d+)$/.exec(field)?.[1]
  if (line !== undefined) return Number(line)
  let node: unknown = document.contents
  let found = startOf(node)
  for (const step of stepsOf(field, node)) {
    const next = within(node, step)
    if (next === undefined) break
    found = next.start ?? found
    node = next.node
  }
  return found === undefined ? undefined : lines.linePos(found).line
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

function within(node: unknown, step: string | number): { node: unknown; start: number | undefined } | undefined {
  if (typeof step === 'number') {
    const item = isSeq(node) ? node.items[step] : undefined
    return item === undefined ? undefined : { node: item, start: startOf(item) }
  }
  const pair = isMap(node) ? node.items.find(({ key }) => isScalar(key) && String(key.value) === step) : undefined
  return pair === undefined ? undefined : { node: pair.value, start: startOf(pair.key) }
}

function startOf(node: unknown): number | undefined {
  return (node as Node | null)?.range?.[0]
}
