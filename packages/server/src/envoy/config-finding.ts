// Findings in a configuration of envoyproxy/ratelimit. An error rejects the configuration; a warning is about a part
// that has no effect.

export type ConfigFinding = {
  readonly severity: 'error' | 'warning'
  readonly line: number
  /** Such as `descriptors[0].rate_limit.unit`. */
  readonly field: string
  readonly value: unknown
  readonly fix: string
}

/** A descriptor of the configuration, with its place in the file. */
export type ConfigNode = {
  readonly line: number
  readonly field: string
  readonly key: string
  /** Undefined: any value, each with a counter of its own. */
  readonly value: string | undefined
  /** `key_value`, or the key alone: the text that entries are compared with. */
  readonly composite: string
  readonly rateLimit: ConfigLimit | undefined
  readonly shadowMode: boolean
  readonly quotaMode: boolean
  readonly detailedMetric: boolean
  readonly valueToMetric: boolean
  readonly shareThreshold: boolean
  readonly metadata: Readonly<Record<string, unknown>> | undefined
  readonly children: readonly ConfigNode[]
}

export type ConfigLimit = {
  readonly line: number
  /** Name of the unit; undefined: unlimited. */
  readonly unit: string | undefined
  readonly requestsPerUnit: number
  readonly name: string
  readonly replaces: readonly string[]
}

export type ConfigDomain = {
  readonly domain: string
  readonly line: number
  readonly children: readonly ConfigNode[]
}

export function isWildcard({ composite }: Pick<ConfigNode, 'composite'>): boolean {
  return composite.includes('*')
}
