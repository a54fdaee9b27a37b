// Which rules a request meets, through an index: method and path lead to a shelf, and the exact facts that rules demand
// lead to the few rules on it. 10,000 rules cost about what 10 cost, also when many share a path and differ in plan.

import { foldedCase, pathReadings } from '../http/path-readings.ts'
import { mapped, type Sliced } from '../slices.ts'
import type { Subject } from '../subject.ts'
import type { CompiledRule } from './compile.ts'
import { type Condition, type FactReader, readerOf, withHead } from './condition.ts'
import { isWild, segmentsOf } from './pattern.ts'

/** Paths remembered at most: a flood of new ones costs a few lookups each, and no more memory than this. */
const KNOWN_MAX = 4096
const KNOWN_LENGTH_MAX = 256
const KNOWN_METHODS_MAX = 16

/** Rules of one place: those that demand nothing more, those filed under an exact fact they demand, and the others. */
type Shelf = {
  readonly free: CompiledRule[]
  readonly filed: { readonly fact: string; readonly read: FactReader; readonly byValue: Map<string, CompiledRule[]> }[]
  readonly tested: CompiledRule[]
}

/** Shelves of one pattern: for every method, and for some. */
type Place = { readonly anyMethod: Shelf; readonly byMethod: Map<string, Shelf> }

/** A path in its canonical form, and the places of all patterns that match it. */
export type Spot = {
  readonly path: string
  readonly places: Place[]
  readonly byMethod: Map<string, Meeting>
  /** Where the path leads when it is read in other ways: what it meets there, it has to pass too. */
  readonly others: Spot[]
}

/** What a method meets at a spot: rules that apply whatever the request says, and shelves to be searched. */
type Meeting = { readonly free: readonly CompiledRule[]; readonly shelves: readonly Shelf[] }

/** The rules that a request meets at a spot. `method` may be in any case. */
export function rulesAt(spot: Spot, subject: Subject, method: string): readonly CompiledRule[] {
  const { free, shelves } = spot.byMethod.get(method) ?? meetingOf(spot, method)
  if (shelves.length === 0) return free
  const matched = [...free]
  for (const shelf of shelves) searchShelf(shelf, subject, matched)
  return matched
}

function meetingOf(spot: Spot, method: string): Meeting {
  const upper = method.toUpperCase()
  const all = spot.places.flatMap((place) => [place.anyMethod, place.byMethod.get(upper) ?? []]).flat()
  const meeting = {
    free: all.flatMap(({ free }) => free),
    shelves: all.filter(({ filed, tested }) => filed.length > 0 || tested.length > 0),
  }
  if (spot.byMethod.size < KNOWN_METHODS_MAX) spot.byMethod.set(method, meeting)
  return meeting
}

type Node = {
  readonly literals: Map<string, Node>
  wild: Node | undefined
  /** Rules of the pattern that ends here. */
  here: Place | undefined
  /** Rules of the pattern that goes on with `**`. */
  rest: Place | undefined
}

export class RuleIndex {
  readonly #root: Node = newNode()
  /** Patterns without wildcards, by the path they are: most rules of most rule sets, and found at once. */
  readonly #literals = new Map<string, Place>()
  readonly #known = new Map<string, Spot>()
  readonly #demand: ReadonlyMap<string, number>

  private constructor(demand: ReadonlyMap<string, number>) {
    this.#demand = demand
  }

  static *of(rules: readonly CompiledRule[]): Sliced<RuleIndex> {
    const index = new RuleIndex(demandOf(rules))
    yield* mapped(rules, (rule) => index.#add(rule))
    return index
  }

  /** Where a path, in any form, leads. That depends on the rules alone, so it is kept for paths that come again. */
  spotOf(path: string): Spot {
    const known = this.#known.get(path)
    if (known !== undefined) return known
    const { key, all } = pathReadings(path)
    const spot = this.#spotAt(key)
    for (const reading of all) {
      const other = this.#spotAt(reading)
      if (![spot, ...spot.others].some((known) => leadsTo(known, other.places))) spot.others.push(other)
    }
    if (path.length <= KNOWN_LENGTH_MAX) {
      if (this.#known.size >= KNOWN_MAX) this.#known.clear()
      this.#known.set(path, spot)
    }
    return spot
  }

  #spotAt(path: string): Spot {
    const spot: Spot = { path, places: [], byMethod: new Map(), others: [] }
    const literal = this.#literals.get(path)
    if (literal !== undefined) spot.places.push(literal)
    visit(this.#root, path, path === '/' ? 2 : 1, spot.places)
    return spot
  }

  #add(rule: CompiledRule): void {
    shelve(this.#placeOf(rule.rule.endpoint_pattern), rule, this.#demand)
  }

  #placeOf(given: string): Place {
    const pattern = foldedCase(given)
    const segments = segmentsOf(pattern)
    if (!segments.some((segment) => segment === '**' || isWild(segment)))
      return getOrAdd(this.#literals, pattern, newPlace)
    let node = this.#root
    for (const segment of segments) {
      if (segment === '**') {
        node.rest ??= newPlace()
        return node.rest
      }
      node = isWild(segment) ? wildOf(node) : getOrAdd(node.literals, segment, newNode)
    }
    node.here ??= newPlace()
    return node.here
  }
}

/** `start` is where the next segment of `path` begins; past its end, the path is used up. */
function visit(node: Node, path: string, start: number, places: Place[]): void {
  if (node.rest !== undefined) places.push(node.rest)
  if (start > path.length) {
    if (node.here !== undefined) places.push(node.here)
    return
  }
  if (node.literals.size === 0 && node.wild === undefined) return
  const slash = path.indexOf('/', start)
  const end = slash === -1 ? path.length : slash
  const literal = node.literals.get(path.slice(start, end))
  if (literal !== undefined) visit(literal, path, end + 1, places)
  if (node.wild !== undefined) visit(node.wild, path, end + 1, places)
}

/** Visited in one order, so the same places stand in the same order. */
function leadsTo(spot: Spot, places: readonly Place[]): boolean {
  return spot.places.length === places.length && spot.places.every((place, index) => place === places[index])
}

function searchShelf(shelf: Shelf, subject: Subject, matched: CompiledRule[]): void {
  for (const rule of shelf.tested) if (holdsAll(rule, subject)) matched.push(rule)
  for (const { read, byValue } of shelf.filed) {
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

function shelve(place: Place, rule: CompiledRule, demand: ReadonlyMap<string, number>): void {
  const methods = withHead(rule.rule.method)
  if (methods.length === 0) fileRule(place.anyMethod, rule, demand)
  for (const method of new Set(methods)) fileRule(getOrAdd(place.byMethod, method, newShelf), rule, demand)
}

/** How many rules demand each exact value of each fact. */
function demandOf(rules: readonly CompiledRule[]): Map<string, number> {
  const demand = new Map<string, number>()
  for (const { conditions } of rules) {
    for (const { fact, exact = [] } of conditions) {
      for (const value of exact) demand.set(`${fact} ${value}`, (demand.get(`${fact} ${value}`) ?? 0) + 1)
    }
  }
  return demand
}

/** Under the demand that the fewest rules share: it leaves the fewest others to look at. */
function fileRule(shelf: Shelf, rule: CompiledRule, demand: ReadonlyMap<string, number>): void {
  const sharers = ({ fact, exact = [] }: Condition) =>
    exact.reduce((sum, value) => sum + (demand.get(`${fact} ${value}`) ?? 0), 0)
  const [narrow] = rule.conditions
    .filter((condition) => condition.exact !== undefined)
    .sort((one, other) => sharers(one) - sharers(other))
  if (narrow === undefined) {
    const { free, tested } = shelf
    const pile = rule.conditions.length === 0 ? free : tested
    pile.push(rule)
    return
  }
  let filed = shelf.filed.find(({ fact }) => fact === narrow.fact)
  if (filed === undefined) {
    filed = { fact: narrow.fact, read: readerOf(narrow.fact), byValue: new Map() }
    shelf.filed.push(filed)
  }
  for (const value of new Set(narrow.exact)) getOrAdd(filed.byValue, value, () => []).push(rule)
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

function newPlace(): Place {
  return { anyMethod: newShelf(), byMethod: new Map() }
}

function newShelf(): Shelf {
  return { free: [], filed: [], tested: [] }
}
