// `npm run fleet`: two regions on this machine, under load, until the time is up or Ctrl-C. Whatever the end, no process
// and no folder is left. Exit codes: 0 all promises kept, 1 one broke or something failed, 2 not understood.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Bed } from './bed.ts'
import { closeConnections } from './http-client.ts'
import { HELP, readOptions } from './options.ts'
import { runFleet } from './run-fleet.ts'

process.exitCode = await main(process.argv.slice(2))

async function main(args: readonly string[]): Promise<number> {
  const asked = readOptions(args)
  if (asked.kind === 'help') process.stdout.write(HELP)
  if (asked.kind === 'wrong') process.stderr.write(`fleet: ${asked.fault}\n\n${HELP}`)
  if (asked.kind !== 'run') return asked.kind === 'help' ? 0 : 2
  const { options } = asked
  useOwnFolder()
  const end = endAsked()
  let bed: Bed | undefined
  try {
    bed = await Bed.start(options.nodes, (what) => process.stderr.write(`fleet: starting ${what}\n`))
    return (await runFleet(bed, options, end)) ? 0 : 1
  } catch (error) {
    if (!end.aborted) process.stderr.write(`fleet: ${error instanceof Error ? error.message : String(error)}\n`)
    return 1
  } finally {
    closeConnections()
    await bed?.stop()
  }
}

/** Servers make their temporary folders in it, so whatever becomes of them, all of it goes with this process. */
function useOwnFolder(): void {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-fleet-run-'))
  process.env.TMPDIR = folder
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
}

/** The first Ctrl-C ends the run in good order, the second one at once. */
function endAsked(): AbortSignal {
  const controller = new AbortController()
  const ask = () => {
    if (controller.signal.aborted) process.exit(1)
    process.stderr.write('\nfleet: stopping everything\n')
    controller.abort()
  }
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, ask)
  return controller.signal
}
