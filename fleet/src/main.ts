// `npm run fleet`: runs two regions on this machine under load, until the time is up or Ctrl-C. Exit codes: 0 all
// guarantees held, 1 a guarantee broken or a failure, 2 invalid arguments.

import { reportText } from './guarantees.ts'
import { HELP, readOptions } from './options.ts'
import { runFleet } from './run-fleet.ts'
import { inTemporaryFolder } from './temporary-folder.ts'
import { Testbed } from './testbed.ts'

process.exitCode = await main(process.argv.slice(2))

async function main(args: readonly string[]): Promise<number> {
  const command = readOptions(args)
  if (command.kind === 'help') process.stdout.write(HELP)
  if (command.kind === 'invalid') process.stderr.write(`fleet: ${command.error}\n\n${HELP}`)
  if (command.kind !== 'run') return command.kind === 'help' ? 0 : 2
  const { options } = command
  return inTemporaryFolder('fleet', async (end) => {
    const testbed = await Testbed.start(options.nodes)
    try {
      const guarantees = await runFleet(testbed, options, end)
      process.stdout.write(reportText(guarantees))
      return guarantees.every(({ held }) => held)
    } finally {
      await testbed.stop()
    }
  })
}
