// `npm run soak`: the long versions of what `npm test` proves in seconds. Parts run one after the other; the exit code
// is 1 when a promise broke.

import { Bed } from '../bed.ts'
import { inOwnFolder } from '../own-folder.ts'
import { runFleet } from '../run-fleet.ts'
import { type Promised, verdictText } from '../verdict.ts'
import { reconnect } from './reconnect.ts'
import { reshard } from './reshard.ts'
import { rollingRestart } from './rolling-restart.ts'

/** How much of everything; the short version is for `npm test`. */
const LONG = { seconds: 300, nodes: 2, rate: 300, moves: 6, outageSeconds: 10 }
const SHORT = { seconds: 8, nodes: 1, rate: 150, moves: 1, outageSeconds: 1 }

type Part = (size: typeof LONG, end: AbortSignal) => Promise<readonly Promised[]>

const PARTS: Readonly<Record<string, Part>> = {
  fleet: async (size, end) => {
    const bed = await Bed.start(size.nodes)
    return runFleet(bed, size, end).finally(() => bed.stop())
  },
  'rolling-restart': ({ nodes }) => rollingRestart(nodes),
  reshard: ({ moves }) => reshard(moves),
  reconnect: ({ outageSeconds }) => reconnect(outageSeconds),
}

const HELP = `Usage: npm run soak -- [--short] [${Object.keys(PARTS).join('|')}] …

  fleet            five minutes of load on two regions, a primary killed half-way
  rolling-restart  every service node replaced by one with another script, under load
  reshard          1000 slots of a Cluster moved there and back under load
  reconnect        50 clients come back after an outage

  --short          a few seconds of each
`

process.exitCode = await main(process.argv.slice(2))

async function main(args: readonly string[]): Promise<number> {
  const names = args.filter((arg) => arg !== '--short')
  const size = names.length < args.length ? SHORT : LONG
  const unknown = names.find((name) => !(name in PARTS))
  if (unknown !== undefined) {
    process.stdout.write(HELP)
    return unknown === '--help' ? 0 : 2
  }
  return inOwnFolder('soak', async (end) => {
    let kept = true
    for (const name of names.length > 0 ? names : Object.keys(PARTS)) {
      process.stdout.write(`\n${name}\n`)
      const promises = (await PARTS[name]?.(size, end)) ?? []
      process.stdout.write(verdictText(promises))
      kept &&= promises.every((promised) => promised.kept)
      if (end.aborted) break
    }
    return kept
  })
}
