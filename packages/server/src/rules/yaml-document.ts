// Parses YAML in time that is proportional to its length. Depth and anchors are bounded, and two checks of the library
// that compare every key or anchor with all earlier ones are done here.

import { type Alias, type Document, isScalar, LineCounter, type Node, parseDocument, visit } from 'yaml'
import { isNestedTooDeep, NESTING_MAX } from './nesting.ts'

export type YamlMistake = { readonly line: number; readonly why: string }

export type YamlDocument = {
  readonly document: Document
  /** Syntax errors and warnings in the order of the text. */
  readonly mistakes: readonly YamlMistake[]
  /** Line of a node; undefined if it is none. */
  lineOf(node: unknown): number | undefined
  /** The node that an alias stands for; undefined if there is none. */
  resolve(alias: Alias): Node | undefined
}

/** The library looks for the anchor of an alias among all of them. */
const ANCHORS_MAX = 1000
/** A single mistake may cause a thousand parser errors. */
const MISTAKES_MAX = 100

/** Fix for a text that is rejected without being parsed. */
export class YamlTooComplex extends Error {}

/** Throws YamlTooComplex. */
export function parseYaml(text: string, { merge = false }: { readonly merge?: boolean } = {}): YamlDocument {
  if (isNestedTooDeep(text)) throw new YamlTooComplex(`nest at most ${NESTING_MAX} levels deep`)
  const lines = new LineCounter()
  // The parser would print warnings to stderr that quote the text, which may contain secrets. Its own check for unique
  // keys compares each key with all keys before it, and so do the ordered maps of YAML 1.1.
  const rewritten = { uniqueKeys: false, resolveKnownTags: false }
  const options = { prettyErrors: false, merge, logLevel: 'error', ...rewritten } as const
  const document = parseDocument(text, { lineCounter: lines, ...options })
  const targets = new Map<Alias, Node>()
  const found = [...document.errors, ...document.warnings].flatMap(({ code, message, pos }) => {
    if (code !== 'MULTIPLE_DOCS') return { at: pos[0], why: message }
    return isBlank(text.slice(pos[0])) ? [] : { at: pos[0], why: 'multiple documents; use a file for each' }
  })
  const anchors = new Map<string, Node>()
  const addAnchor = (node: Node) => {
    if ('anchor' in node && typeof node.anchor === 'string') anchors.set(node.anchor, node)
  }
  visit(document, {
    Alias: (_, alias) => {
      const target = anchors.get(alias.source)
      if (target !== undefined) targets.set(alias, target)
      else {
        const why = `no value before it has the anchor &${alias.source}; put it in quotes if it is a text`
        found.push({ at: alias.range?.[0] ?? 0, why: `*${alias.source}: ${why}` })
      }
    },
    Map: (_, map) => {
      addAnchor(map)
      const keys = new Set<unknown>()
      for (const { key } of map.items) {
        if (!isScalar(key)) continue
        if (keys.has(key.value)) found.push({ at: key.range?.[0] ?? 0, why: 'Map keys must be unique' })
        keys.add(key.value)
      }
    },
    Node: (_, node) => addAnchor(node),
  })
  if (anchors.size > ANCHORS_MAX) throw new YamlTooComplex(`use at most ${ANCHORS_MAX} anchors`)
  found.sort((one, other) => one.at - other.at)
  return {
    document,
    mistakes: found.slice(0, MISTAKES_MAX).map(({ at, why }) => ({ line: lines.linePos(at).line, why })),
    lineOf: (node) => {
      const start = (node as Node | null | undefined)?.range?.[0]
      return start === undefined ? undefined : lines.linePos(start).line
    },
    resolve: (alias) => targets.get(alias),
  }
}

/** Whether it has only comments and the markers of documents: a trailing `---` is common. */
function isBlank(text: string): boolean {
  return text.split('\n').every((line) => /^((---|\.\.\.)(?=\s|$))?\s*(#.*)?$/.test(line))
}
