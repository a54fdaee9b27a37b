// Finds import cycles between the top-level entries of a source folder (its folders, and the files at its root), or
// between its files. Type imports count, test files do not. A reported cycle names both files of each edge.

import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'

/** Entry → imported entry → the imports that make the edge, as `file → file`. */
export type ImportGraph = Map<string, Map<string, string[]>>

const IMPORTS = /(?:\bfrom|\bimport)\s*\(?\s*'(\.[^']+)'/g

/** `entryOf`: entry of a file by its path. Default: its top-level folder. */
export function importGraph(source: string, entryOf: (path: string) => string = topLevelOf): ImportGraph {
  const graph: ImportGraph = new Map()
  const files = readdirSync(source, { recursive: true, encoding: 'utf8' })
  for (const file of files.filter((path) => /\.tsx?$/.test(path) && !path.endsWith('.test.ts')).sort()) {
    const edges = graph.get(entryOf(file)) ?? new Map<string, string[]>()
    graph.set(entryOf(file), edges)
    for (const [, target = ''] of readFileSync(join(source, file), 'utf8').matchAll(IMPORTS)) {
      const imported = relative(source, join(source, dirname(file), target))
      const entry = entryOf(imported)
      if (entry === entryOf(file) || imported.startsWith('..')) continue
      edges.set(entry, [...(edges.get(entry) ?? []), `${file} → ${imported}`])
    }
  }
  return graph
}

/** One shortest cycle per strongly connected component, with up to three imports for each of its edges. */
export function describeCycles(graph: ImportGraph): string[] {
  return components(graph).map((members) => {
    const cycle = shortestCycle(graph, members)
    const edges = cycle.slice(1).map((to, index) => {
      const imports = graph.get(cycle[index] ?? '')?.get(to) ?? []
      const more = imports.length > 3 ? [`and ${imports.length - 3} more`] : []
      return [`  ${cycle[index]} imports ${to}:`, ...imports.slice(0, 3), ...more].join('\n    ')
    })
    const others = members.length + 1 - cycle.length
    const more = others > 0 ? ` (${others} more entries in the same component)` : ''
    return [`import cycle: ${cycle.join(' → ')}${more}`, ...edges].join('\n')
  })
}

/** Imports of a higher layer, as `file → file`, and entries that no layer lists. */
export function describeDisorder(graph: ImportGraph, layers: readonly (readonly string[])[]): string[] {
  const layerOf = new Map(layers.flatMap((layer, index) => layer.map((name) => [name, index] as const)))
  const layer = (entry: string) => layerOf.get(entry.replace(/\.ts$/, ''))
  const unlisted = [...graph.keys()]
    .filter((entry) => layer(entry) === undefined)
    .map((entry) => `${entry}: not listed`)
  const upwards = [...graph].flatMap(([from, edges]) =>
    [...edges].filter(([to]) => (layer(to) ?? 0) > (layer(from) ?? 0)).flatMap(([, imports]) => imports),
  )
  return [...unlisted, ...upwards]
}

/** Layers of a source folder in a page, lowest first: the indented lines below the line of the folder. */
export function documentedLayers(page: string, source: string): string[][] {
  const lines = page.split('\n')
  const start = lines.findIndex((line) => line.startsWith(`${source}/`)) + 1
  const rest = lines.slice(start)
  const layers = rest.slice(
    0,
    rest.findIndex((line) => !line.startsWith('  ')),
  )
  return layers.map((line) => (line.trim().split(/ {2,}/)[0] ?? '').split(' ').map((name) => name.replace(/\/$/, '')))
}

/** Strongly connected components of two or more entries. */
function components(graph: ImportGraph): string[][] {
  const reachable = new Map([...graph.keys()].map((entry) => [entry, reachableFrom(graph, entry)]))
  const reaches = (from: string, to: string) => reachable.get(from)?.has(to) === true
  const cyclic = [...graph.keys()].filter((entry) => reaches(entry, entry)).sort()
  return cyclic
    .filter((entry) => entry === cyclic.find((other) => reaches(entry, other) && reaches(other, entry)))
    .map((first) => cyclic.filter((other) => reaches(first, other) && reaches(other, first)))
}

function reachableFrom(graph: ImportGraph, start: string): Set<string> {
  const found = new Set<string>()
  const queue = [start]
  for (let entry = queue.pop(); entry !== undefined; entry = queue.pop()) {
    for (const next of graph.get(entry)?.keys() ?? []) {
      if (found.has(next)) continue
      found.add(next)
      queue.push(next)
    }
  }
  return found
}

function shortestCycle(graph: ImportGraph, members: string[]): string[] {
  const cycles = members.map((start) => cycleThrough(graph, start, members))
  return cycles.reduce((shortest, cycle) => (cycle.length < shortest.length ? cycle : shortest))
}

/** Breadth-first search for the shortest cycle through an entry. */
function cycleThrough(graph: ImportGraph, start: string, members: string[]): string[] {
  const seen = new Set<string>()
  let paths = [[start]]
  while (paths.length > 0) {
    const longer: string[][] = []
    for (const path of paths) {
      for (const next of edgesWithin(graph, path.at(-1) ?? start, members)) {
        if (next === start) return [...path, start]
        if (!seen.has(next)) longer.push([...path, next])
        seen.add(next)
      }
    }
    paths = longer
  }
  throw new Error(`${start} is on no cycle`)
}

function edgesWithin(graph: ImportGraph, from: string, members: string[]): string[] {
  return [...(graph.get(from)?.keys() ?? [])].filter((to) => members.includes(to))
}

function topLevelOf(path: string): string {
  return path.split(sep)[0] ?? path
}
