// YAML or JSON text → value, with the line of each field, so that a message can say where to look.

import type { Fault } from 'sluice'
import { type Document, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml'
import { jsonMistakeAt } from '../text/json-mistake.ts'
import { isNestedTooDeep, NESTING_MAX } from './nesting.ts'

export type SourceText = {
  readonly value: unknown
  /** What keeps the text from being YAML or JSON at all. */
  readonly faults: readonly Fault[]
  /** Line of a field such as `rules[3].limit`, or of the nearest thing around it. */
  lineOf(field: string): number | undefined
}

/** A few anchors are handy; thousands of aliases are an attack. */
const ALIASES_MAX = 100
/** One slip may be a thousand mistakes to the parser. */
const FAULTS_MAX = 100
/** Finding lines means parsing JSON again, slowly: only where somebody is likely to read the file. */
const LINES_LENGTH_MAX = 1_000_000

/** Undefined when the bytes are not UTF-8: mended in silence, they would not be what their author wrote. */
export function utf8Text(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return undefined
  }
}

export function readYaml(text: string): SourceText {
  if (isNestedTooDeep(text)) return { value: undefined, faults: [tooDeep()], lineOf: () => undefined }
  const { document, lines } = parse(text)
  const faults = [...document.errors, ...document.warnings].slice(0, FAULTS_MAX).map(({ message, pos }) => {
    const { line } = lines.linePos(pos[0])
    return { field: `line ${line}`, value: lineAt(text, line), fix: `make it YAML: ${message}` }
  })
  const lineOf = (field: string) => lineOfField(document, lines, field)
  if (faults.length > 0) return { value: undefined, faults, lineOf }
  try {
    return { value: document.toJS({ maxAliasCount: ALIASES_MAX }), faults, lineOf }
  } catch (error) {
    return { value: undefined, faults: [unusable(error)], lineOf }
  }
}

export function readJson(text: string): SourceText {
  const lineOf = (field: string) => {
    if (text.length > LINES_LENGTH_MAX || isNestedTooDeep(text)) return undefined
    const { document, lines } = parse(text)
    return lineOfField(document, lines, field)
  }
  try {
    return { value: JSON.parse(text), faults: [], lineOf }
  } catch {
    return { value: undefined, faults: [jsonFault(text)], lineOf }
  }
}

function parse(text: string): { document: Document; lines: LineCounter } {
  const lines = new LineCounter()
  // The parser's own warnings go to stderr and quote the text, which may hold secrets.
  const options = { prettyErrors: false, merge: true, logLevel: 'error' } as const
  const document = parseDocument(text, { lineCounter: lines, ...options })
  return { document, lines }
}

function tooDeep(): Fault {
  return { field: 'file', value: undefined, fix: `nest it at most ${NESTING_MAX} levels deep` }
}

function unusable(error: unknown): Fault {
  const why = error instanceof Error ? error.message : String(error)
  return { field: 'file', value: undefined, fix: `use at most ${ALIASES_MAX} aliases and little nesting: ${why}` }
}

function jsonFault(text: string): Fault {
  const at = jsonMistakeAt(text)
  const line = text.slice(0, at).split('\n').length
  const why =
    at === text.length ? 'it ends too early' : `there is a mistake at character ${at - text.lastIndexOf('\n', at - 1)}`
  return { field: `line ${line}`, value: lineAt(text, line), fix: `make it JSON: ${why}` }
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

/** `rules[3].limit` → 'rules', 3, 'limit'. A file that is a list has no `rules` or `tokens` to step into. */
function stepsOf(field: string, root: unknown): (string | number)[] {
  const steps = [...field.matchAll(/\[(\d+)\]|[^.[\]]+/g)].map(([text, index]) => (index ? Number(index) : text))
  if (isSeq(root) && (steps[0] === 'rules' || typeof steps[1] === 'number')) return steps.slice(1)
  return typeof steps[1] === 'number' || steps[0] === 'rules' ? steps : ruleById(field, steps, root)
}

/** Some faults name the rule by its id rather than by its place. */
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
