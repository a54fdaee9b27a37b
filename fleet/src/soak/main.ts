// `npm run soak`: the long versions of what `npm test` proves in seconds. Parts run one after the other; the exit code is
// 1 when a promise broke.

import { Bed } from '../bed.ts'
import { inOwnFolder } from '../own-folder.ts'
import { runFleet } from '../run-fleet.ts'
import { type Promised, verdictText } from '../verdict.ts'
import { reconnect } from './reconnect.ts'
import { reshard } from './reshard.ts'
import { rollingRestart } from './rolling-restart.ts'

const FLEET = { seconds: 300, nodes: 2, rate: 300 }
const OUTAGE_SECONDS = 10

const PARTS: Readonly<Record<string, (end: AbortSignal) => Promise<readonly Promised[]>>> = {
  fleet: async (end) => {
    const bed = await Bed.start(FLEET.nodes)
    return runFleet(bed, FLEET, end).finally(() => bed.stop())
  },
  'rolling-restart': () => rollingRestart(2),
  reshard,
  reconnect: () => reconnect(OUTAGE_SECONDS),
}

const HELP = `Usage: npm run soak -- [${Object.keys(PARTS).join('|')}] …

  fleet            five minutes of load on two regions, a primary killed half-way
  rolling-restart  every service node replaced by one with another script, under load
  reshard          1000 slots of a Cluster moved under load
  reconnect        50 clients come back after an outage of ${OUTAGE_SECONDS} s
`

process.exitCode = await main(process.argv.slice(2))

async function main(names: readonly string[]): Promise<number> {
  const unknown = names.find((name) => !(name in PARTS))
  if (unknown !== undefined) {
    process.stdout.write(HELP)
    return unknown === '--help' ? 0 : 2
  }
  return inOwnFolder('soak', async (end) => {
    let kept = true
    for (const name of names.length > 0 ? names : Object.keys(PARTS)) {
      process.stdout.write(`\n${name}\n`)
      const promises = (await PARTS[name]?.(end)) ?? []
      process.stdout.write(verdictText(promises))
      kept &&= promises.every((promised) => promised.kept)
      if (end.aborted) break
    }
    return kept
  })
}
