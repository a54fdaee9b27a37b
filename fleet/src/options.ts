// The command line of the fleet → what to start and for how long. Whatever is wrong is named, with the fix.

import { parseArgs } from 'node:util'

export type FleetOptions = {
  /** Undefined: until it is told to end. */
  readonly seconds: number | undefined
  /** Service nodes in each region. */
  readonly nodes: number
  /** Requests a second, of all regions together. */
  readonly rate: number
}

export type Asked =
  | { readonly kind: 'run'; readonly options: FleetOptions }
  | { readonly kind: 'help' }
  | { readonly kind: 'wrong'; readonly fault: string }

const DEFAULTS = { nodes: 2, rate: 300 } as const

export const HELP = `Usage: npm run fleet -- [options]

Two regions on this machine: in each a Redis Cluster (3 primaries, 3 replicas) and service nodes, and a global Redis
that both lease from. Load is sent over HTTP, and every interval is held against the limits.

  --seconds N  end by itself after so long, with a verdict: exit code 1 when a promise broke. Half-way, a primary of the
               first region is killed. Without it: until Ctrl-C
  --nodes N    service nodes in each region, 1 to 16 (default ${DEFAULTS.nodes})
  --rate N     requests a second, of all regions together, 10 to 10000 (default ${DEFAULTS.rate})
  --help       this text
`

export function readOptions(args: readonly string[]): Asked {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        seconds: { type: 'string' },
        nodes: { type: 'string' },
        rate: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    })
    if (values.help) return { kind: 'help' }
    const seconds = values.seconds === undefined ? undefined : count('seconds', values.seconds, 4, 86_400)
    const nodes = values.nodes === undefined ? DEFAULTS.nodes : count('nodes', values.nodes, 1, 16)
    const rate = values.rate === undefined ? DEFAULTS.rate : count('rate', values.rate, 10, 10_000)
    return { kind: 'run', options: { seconds, nodes, rate } }
  } catch (error) {
    return { kind: 'wrong', fault: error instanceof Error ? error.message : String(error) }
  }
}

function count(name: string, text: string, min: number, max: number): number {
  const value = /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new Error(`--${name} ${text}: give a whole number from ${min} to ${max}`)
}
