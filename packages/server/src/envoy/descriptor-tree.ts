// A domain of a configuration of envoyproxy/ratelimit, compiled for lookups. Each entry of a descriptor descends one
// level: the exact `key_value`, then the wildcards in the order of the file, then the key alone. Matching never
// backtracks; only the last entry's node applies a limit.

import { compileLimit, type Limit } from 'sluice'
import { type ConfigDomain, type ConfigNode, isWildcard } from './config-finding.ts'
import type { Entry } from './rate-limit-request.ts'
import { CurrentLimit, type Json } from './rate-limit-response.ts'
import { type Unit, unitNamed } from './units.ts'
import { matchesParts } from './wildcard.ts'

/** Capacity of a bucket used as a counter: hits = COUNTER_UNITS − remaining. */
export const COUNTER_UNITS: number = 2 ** 50

/** A limit of the configuration, or one that a request brought. */
export type DescriptorLimit = {
  /** Rule id in metrics, events and history; `envoy:` cannot begin the id of a rule. */
  readonly ruleId: string
  /** Undefined: unlimited. */
  readonly counter: Limit | undefined
  readonly current: CurrentLimit
  readonly windowSeconds: number
  readonly name: string
  readonly replaces: readonly string[]
  readonly shadow: boolean
  readonly quota: boolean
  readonly metadata: Readonly<Record<string, Json>> | undefined
}

/** The limit of a descriptor, and the key of its counter. */
export type Match = { readonly limit: DescriptorLimit; readonly counterKey: string; readonly ruleId: string }

type TreeNode = {
  readonly limit: DescriptorLimit | undefined
  readonly children: ReadonlyMap<string, TreeNode>
  readonly wildcards: readonly { readonly parts: readonly string[]; readonly node: TreeNode }[]
  /** Replaces the value in counter keys, if all matches share one counter. */
  readonly sharedValue: string | undefined
  /** Whether a wildcard or a bare key matched: the name in metrics then leaves out the value. */
  readonly metric: 'fixed' | 'value' | 'detailed'
}

export class DescriptorTree {
  readonly domain: string
  /** Counters of its limits, and of limits that requests bring. */
  readonly counters: Counters
  readonly #root: TreeNode
  readonly #hasMetricValues: boolean
  /** Names with values of requests. */
  readonly #metricNames = new Set<string>()

  constructor(config: ConfigDomain) {
    this.domain = config.domain
    this.counters = new Counters(config.domain)
    this.#root = treeNode(undefined, config.children, `envoy:${config.domain}`, this.counters)
    this.#hasMetricValues = hasMetricValues(config.children)
  }

  /** Undefined: no limit applies. */
  find(entries: readonly Entry[]): Match | undefined {
    let node = this.#root
    let counterKey = ''
    for (let index = 0; index < entries.length; index += 1) {
      const { key, value } = entries[index] as Entry // in range
      const next = childOf(node, key, value)
      if (next === undefined) return undefined
      node = next
      counterKey += keyPart(key, next.sharedValue ?? value)
    }
    const { limit } = node
    if (limit === undefined) return undefined
    return { limit, counterKey, ruleId: this.#hasMetricValues ? this.#metricName(limit, entries) : limit.ruleId }
  }

  /** Name with the values that `detailed_metric` and `value_to_metric` ask for. */
  #metricName(limit: DescriptorLimit, entries: readonly Entry[]): string {
    const path: { node: TreeNode; entry: Entry }[] = []
    let node = this.#root
    for (const entry of entries) {
      const next = childOf(node, entry.key, entry.value)
      if (next === undefined) return limit.ruleId
      path.push({ node: next, entry })
      node = next
    }
    const isDetailed = node.metric === 'detailed'
    if (!isDetailed && !path.some((step) => step.node.metric === 'value')) return limit.ruleId
    const names = limit.ruleId.slice(`envoy:${this.domain}.`.length).split('.')
    const shown = path.map(({ node: { metric, sharedValue }, entry: { key, value } }, index) => {
      const usesValue = (isDetailed || metric === 'value') && sharedValue === undefined
      return usesValue ? `${key}_${metricText(value)}` : (names[index] ?? key)
    })
    const name = `envoy:${this.domain}.${shown.join('.')}`
    if (this.#metricNames.size >= METRIC_NAMES_MAX && !this.#metricNames.has(name)) return limit.ruleId
    this.#metricNames.add(name)
    return name
  }
}

const METRIC_VALUE_MAX = 128
/** Clients choose the values; beyond this many, the limit is counted under its own name. */
const METRIC_NAMES_MAX = 1000

/** Dots separate levels, and colons are special to some metric systems. */
function metricText(value: string): string {
  return value.slice(0, METRIC_VALUE_MAX).replace(/[.:|]/g, '_')
}

/** Injective: the lengths tell where key and value end. */
export function keyPart(key: string, value: string): string {
  return `${key.length}:${value.length}:${key}${value}`
}

function childOf(node: TreeNode, key: string, value: string): TreeNode | undefined {
  const { children, wildcards } = node
  const composite = `${key}_${value}`
  const exact = children.get(composite)
  if (exact !== undefined) return exact
  for (let index = 0; index < wildcards.length; index += 1) {
    const wildcard = wildcards[index]
    if (wildcard !== undefined && matchesParts(wildcard.parts, composite)) return wildcard.node
  }
  return children.get(key)
}

/** The only limit of a domain and unit: the counters of one unit differ by their keys. */
class Counters {
  readonly #domain: string
  readonly #byUnit = new Map<string, Limit>()

  constructor(domain: string) {
    this.#domain = domain
  }

  of(unit: Unit): Limit {
    const known = this.#byUnit.get(unit.name)
    if (known !== undefined) return known
    const limit = compileLimit({
      id: `envoy:${unit.name}:${this.#domain}`,
      fact: 'descriptor',
      algorithm: 'fixed_window',
      units: COUNTER_UNITS,
      windowUs: unit.seconds * 1_000_000,
      detailBounded: false,
    })
    this.#byUnit.set(unit.name, limit)
    return limit
  }
}

function treeNode(
  config: ConfigNode | undefined,
  children: readonly ConfigNode[],
  path: string,
  counters: Counters,
): TreeNode {
  const compiled = children.map((child) => {
    const node = treeNode(child, child.children, `${path}.${metricText(child.composite)}`, counters)
    return { child, node }
  })
  const isShared = config?.shareThreshold ?? false
  return {
    limit: config && descriptorLimit(config, path, counters),
    children: new Map(compiled.flatMap(({ child, node }) => (isWildcard(child) ? [] : [[child.composite, node]]))),
    wildcards: compiled.flatMap(({ child, node }) => {
      return isWildcard(child) ? { parts: child.composite.split('*'), node } : []
    }),
    sharedValue: isShared ? (config?.value ?? config?.composite) : undefined,
    metric: config?.detailedMetric ? 'detailed' : config?.valueToMetric ? 'value' : 'fixed',
  }
}

function descriptorLimit(config: ConfigNode, ruleId: string, counters: Counters): DescriptorLimit | undefined {
  const { rateLimit, shadowMode: shadow, quotaMode: quota } = config
  if (rateLimit === undefined) return undefined
  const { name, replaces, requestsPerUnit } = rateLimit
  const unit = rateLimit.unit === undefined ? undefined : unitNamed(rateLimit.unit)
  const metadata = config.metadata as Readonly<Record<string, Json>> | undefined // plain YAML values
  const own = { ruleId, name, replaces, shadow, quota, metadata }
  return { ...own, ...limitNumbers(requestsPerUnit, unit, name, counters) }
}

export type LimitNumbers = Pick<DescriptorLimit, 'counter' | 'current' | 'windowSeconds'>

export function limitNumbers(
  requestsPerUnit: number,
  unit: Unit | undefined,
  name: string,
  counters: Counters,
): LimitNumbers {
  const windowSeconds = unit?.seconds ?? 0
  return {
    counter: unit && counters.of(unit),
    current: new CurrentLimit(requestsPerUnit, unit?.number ?? 0, windowSeconds, name),
    windowSeconds,
  }
}

function hasMetricValues(nodes: readonly ConfigNode[]): boolean {
  return nodes.some((node) => node.detailedMetric || node.valueToMetric || hasMetricValues(node.children))
}
