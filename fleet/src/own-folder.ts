// Runs something that starts servers, and leaves nothing behind: no process and no folder, whatever the end.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { closeConnections } from './http-client.ts'

/** Resolves to an exit code: 0 if `work` says that all is well. `end` is aborted when it has to end early. */
export async function inOwnFolder(name: string, work: (end: AbortSignal) => Promise<boolean>): Promise<number> {
  process.setMaxListeners(100) // each process that is started ends with this one
  // Servers make their temporary folders in it, so whatever becomes of them, all of it goes with this process.
  const folder = mkdtempSync(join(tmpdir(), `sluice-${name}-run-`))
  process.env.TMPDIR = folder
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const end = endAsked(name)
  try {
    return (await work(end)) ? 0 : 1
  } catch (error) {
    if (!end.aborted) process.stderr.write(`${name}: ${error instanceof Error ? error.message : String(error)}\n`)
    return 1
  } finally {
    closeConnections()
  }
}

/** The first Ctrl-C ends the run in good order, the second one at once. */
function endAsked(name: string): AbortSignal {
  const controller = new AbortController()
  const ask = () => {
    if (controller.signal.aborted) process.exit(1)
    process.stderr.write(`\n${name}: stopping everything\n`)
    controller.abort()
  }
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, ask)
  return controller.signal
}
