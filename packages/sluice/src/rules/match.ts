// Index of rules: finds the rules that match a request by path, method and exact facts, without testing every rule.
// 10,000 rules cost about as much as 10, even when many share a path and differ only in plan.

import { foldedCase, pathReadings } from '../canonical/path-readings.ts'
import { mapped, type Sliced } from '../slices.ts'
import type { Subject } from '../subject.ts'
import type { CompiledRule } from './compile.ts'
import { type Condition, type FactReader, readerOf, withHead } from './condition.ts'
import { isWild, segmentsOf } from './pattern.ts'

/** Cap of the path cache: a flood of new paths costs a few lookups each and no memory beyond this. */
const CACHED_PATHS_MAX = 4096
const CACHED_PATH_LENGTH_MAX = 256
const CACHED_METHODS_MAX = 16

/** Rules of one pattern and method, by how they are tested. */
type MethodRules = {
  /** Rules without conditions. */
  readonly unconditional: CompiledRule[]
  /** Rules that require an exact value of a fact, indexed by that value. */
  readonly byFact: { readonly fact: string; readonly read: FactReader; readonly byValue: Map<string, CompiledRule[]> }[]
  /** Rules whose conditions are all tested one by one. */
  readonly tested: CompiledRule[]
}

/** Rules of one pattern: those for every method, and those for some. */
type PatternRules = { readonly anyMethod: MethodRules; readonly byMethod: Map<string, MethodRules> }

/** A path in canonical form, and the rules of all patterns that match it. */
export type PathMatch = {
  readonly path: string
  readonly patterns: PatternRules[]
  /** Cache. */
  readonly byMethod: Map<string, MethodMatch>
  /** Matches of other readings of the path. Their rules apply too. */
  readonly otherReadings: PathMatch[]
}

/** Rules for one path and method: those that always match, and those with conditions. */
type MethodMatch = { readonly unconditional: readonly CompiledRule[]; readonly conditional: readonly MethodRules[] }

/** The rules that match a request on this path. `method` may be in any case. */
export function matchingRules(path: PathMatch, subject: Subject, method: string): readonly CompiledRule[] {
  const { unconditional, conditional } = path.byMethod.get(method) ?? matchMethod(path, method)
  if (conditional.length === 0) return unconditional
  const matched = [...unconditional]
  for (const rules of conditional) addMatching(rules, subject, matched)
  return matched
}

function matchMethod(path: PathMatch, method: string): MethodMatch {
  const upper = method.toUpperCase()
  const all = path.patterns.flatMap((pattern) => [pattern.anyMethod, pattern.byMethod.get(upper) ?? []]).flat()
  const match = {
    unconditional: all.flatMap(({ unconditional }) => unconditional),
    conditional: all.filter(({ byFact, tested }) => byFact.length > 0 || tested.length > 0),
  }
  if (path.byMethod.size < CACHED_METHODS_MAX) path.byMethod.set(method, match)
  return match
}

/** Node of the trie of pattern segments. */
type Node = {
  readonly literals: Map<string, Node>
  wild: Node | undefined
  /** Rules of the pattern that ends here. */
  here: PatternRules | undefined
  /** Rules of the pattern that continues with `**`. */
  rest: PatternRules | undefined
}

export class RuleIndex {
  readonly #root: Node = newNode()
  /** Patterns without wildcards, which most are: found in one lookup. */
  readonly #literals = new Map<string, PatternRules>()
  readonly #cache = new Map<string, PathMatch>()
  readonly #valueCounts: ReadonlyMap<string, number>

  private constructor(valueCounts: ReadonlyMap<string, number>) {
    this.#valueCounts = valueCounts
  }

  static *of(rules: readonly CompiledRule[]): Sliced<RuleIndex> {
    const index = new RuleIndex(countValues(rules))
    yield* mapped(rules, (rule) => index.#add(rule))
    return index
  }

  /** Patterns that match a path in any form. Cached: the result depends on the rules alone. */
  matchPath(path: string): PathMatch {
    const cached = this.#cache.get(path)
    if (cached !== undefined) return cached
    const { key, all } = pathReadings(path)
    const match = this.#matchReading(key)
    for (const reading of all) {
      const other = this.#matchReading(reading)
      if (![match, ...match.otherReadings].some((known) => hasPatterns(known, other.patterns)))
        match.otherReadings.push(other)
    }
    if (path.length <= CACHED_PATH_LENGTH_MAX) {
      if (this.#cache.size >= CACHED_PATHS_MAX) this.#cache.clear()
      this.#cache.set(path, match)
    }
    return match
  }

  #matchReading(path: string): PathMatch {
    const match: PathMatch = { path, patterns: [], byMethod: new Map(), otherReadings: [] }
    const literal = this.#literals.get(path)
    if (literal !== undefined) match.patterns.push(literal)
    visit(this.#root, path, path === '/' ? 2 : 1, match.patterns)
    return match
  }

  #add(rule: CompiledRule): void {
    addToPattern(this.#patternRules(rule.rule.endpoint_pattern), rule, this.#valueCounts)
  }

  #patternRules(endpointPattern: string): PatternRules {
    const pattern = foldedCase(endpointPattern)
    const segments = segmentsOf(pattern)
    if (!segments.some((segment) => segment === '**' || isWild(segment)))
      return getOrAdd(this.#literals, pattern, newPatternRules)
    let node = this.#root
    for (const segment of segments) {
      if (segment === '**') {
        node.rest ??= newPatternRules()
        return node.rest
      }
      node = isWild(segment) ? wildOf(node) : getOrAdd(node.literals, segment, newNode)
    }
    node.here ??= newPatternRules()
    return node.here
  }
}

/** Collects the patterns below `node`. `start` is where the next segment of `path` begins, or past its end. */
function visit(node: Node, path: string, start: number, patterns: PatternRules[]): void {
  if (node.rest !== undefined) patterns.push(node.rest)
  if (start > path.length) {
    if (node.here !== undefined) patterns.push(node.here)
    return
  }
  if (node.literals.size === 0 && node.wild === undefined) return
  const slash = path.indexOf('/', start)
  const end = slash === -1 ? path.length : slash
  const literal = node.literals.get(path.slice(start, end))
  if (literal !== undefined) visit(literal, path, end + 1, patterns)
  if (node.wild !== undefined) visit(node.wild, path, end + 1, patterns)
}

/** Whether a match has exactly these patterns. Visits are in a fixed order, so equal sets are equal lists. */
function hasPatterns(match: PathMatch, patterns: readonly PatternRules[]): boolean {
  return match.patterns.length === patterns.length && match.patterns.every((one, index) => one === patterns[index])
}

function addMatching({ tested, byFact }: MethodRules, subject: Subject, matched: CompiledRule[]): void {
  for (const rule of tested) if (holdsAll(rule, subject)) matched.push(rule)
  for (const { read, byValue } of byFact) {
    const value = read(subject)
    const rules = value === undefined ? undefined : byValue.get(value)
    if (rules === undefined) continue
    for (const rule of rules) if (holdsAll(rule, subject)) matched.push(rule)
  }
}

function holdsAll(rule: CompiledRule, subject: Subject): boolean {
  for (const condition of rule.conditions) if (!condition.holds(subject)) return false
  return true
}

function addToPattern(pattern: PatternRules, rule: CompiledRule, valueCounts: ReadonlyMap<string, number>): void {
  const methods = withHead(rule.rule.method)
  if (methods.length === 0) addToMethod(pattern.anyMethod, rule, valueCounts)
  for (const method of new Set(methods))
    addToMethod(getOrAdd(pattern.byMethod, method, newMethodRules), rule, valueCounts)
}

/** Number of rules that require each exact value of each fact. */
function countValues(rules: readonly CompiledRule[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const { conditions } of rules) {
    for (const { fact, exact = [] } of conditions) {
      for (const value of exact) counts.set(`${fact} ${value}`, (counts.get(`${fact} ${value}`) ?? 0) + 1)
    }
  }
  return counts
}

/** Indexes a rule by its most selective exact condition: the one whose values the fewest rules require. */
function addToMethod(rules: MethodRules, rule: CompiledRule, valueCounts: ReadonlyMap<string, number>): void {
  const sharedBy = ({ fact, exact = [] }: Condition) =>
    exact.reduce((sum, value) => sum + (valueCounts.get(`${fact} ${value}`) ?? 0), 0)
  const [narrowest] = rule.conditions
    .filter((condition) => condition.exact !== undefined)
    .sort((one, other) => sharedBy(one) - sharedBy(other))
  if (narrowest === undefined) {
    const { unconditional, tested } = rules
    const list = rule.conditions.length === 0 ? unconditional : tested
    list.push(rule)
    return
  }
  let byFact = rules.byFact.find(({ fact }) => fact === narrowest.fact)
  if (byFact === undefined) {
    byFact = { fact: narrowest.fact, read: readerOf(narrowest.fact), byValue: new Map() }
    rules.byFact.push(byFact)
  }
  for (const value of new Set(narrowest.exact)) getOrAdd(byFact.byValue, value, () => []).push(rule)
}

function wildOf(node: Node): Node {
  node.wild ??= newNode()
  return node.wild
}

function getOrAdd<V>(map: Map<string, V>, key: string, make: () => V): V {
  let value = map.get(key)
  if (value === undefined) {
    value = make()
    map.set(key, value)
  }
  return value
}

function newNode(): Node {
  return { literals: new Map(), wild: undefined, here: undefined, rest: undefined }
}

function newPatternRules(): PatternRules {
  return { anyMethod: newMethodRules(), byMethod: new Map() }
}

function newMethodRules(): MethodRules {
  return { unconditional: [], byFact: [], tested: [] }
}
