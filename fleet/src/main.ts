// `npm run fleet`: two regions on this machine, under load, until the time is up or Ctrl-C. Exit codes: 0 all promises
// kept, 1 one broke or something failed, 2 not understood.

import { Bed } from './bed.ts'
import { HELP, readOptions } from './options.ts'
import { inOwnFolder } from './own-folder.ts'
import { runFleet } from './run-fleet.ts'
import { verdictText } from './verdict.ts'

process.exitCode = await main(process.argv.slice(2))

async function main(args: readonly string[]): Promise<number> {
  const asked = readOptions(args)
  if (asked.kind === 'help') process.stdout.write(HELP)
  if (asked.kind === 'wrong') process.stderr.write(`fleet: ${asked.fault}\n\n${HELP}`)
  if (asked.kind !== 'run') return asked.kind === 'help' ? 0 : 2
  const { options } = asked
  return inOwnFolder('fleet', async (end) => {
    const bed = await Bed.start(options.nodes)
    try {
      const promises = await runFleet(bed, options, end)
      process.stdout.write(verdictText(promises))
      return promises.every(({ kept }) => kept)
    } finally {
      await bed.stop()
    }
  })
}
