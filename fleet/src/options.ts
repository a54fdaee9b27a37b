// Parses the command line of the fleet. Errors name the option, its value and the fix.

import { parseArgs } from 'node:util'

export type FleetOptions = {
  /** Undefined runs until Ctrl-C. */
  readonly seconds: number | undefined
  /** Service nodes in each region. */
  readonly nodes: number
  /** Requests per second over all regions. */
  readonly rate: number
}

export type FleetCommand =
  | { readonly kind: 'run'; readonly options: FleetOptions }
  | { readonly kind: 'help' }
  | { readonly kind: 'invalid'; readonly error: string }

const DEFAULTS = { nodes: 2, rate: 300 } as const

export const HELP = `Usage: npm run fleet -- [options]

Runs two regions on this machine, each with a Redis Cluster (3 primaries, 3 replicas) and service nodes, and a global
Redis that both lease from. Sends load over HTTP and checks every interval against the limits.

  --seconds N  stop after N seconds with a report; exit code 1 if a guarantee was broken. A primary of the first
               region is killed halfway. Default: run until Ctrl-C
  --nodes N    service nodes per region, 1 to 16 (default ${DEFAULTS.nodes})
  --rate N     requests per second over all regions, 10 to 10000 (default ${DEFAULTS.rate})
  --help       print this help
`

export function readOptions(args: readonly string[]): FleetCommand {
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
    return { kind: 'invalid', error: error instanceof Error ? error.message : String(error) }
  }
}

function count(name: string, text: string, min: number, max: number): number {
  const value = /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new Error(`--${name} ${text}: give a whole number from ${min} to ${max}`)
}
