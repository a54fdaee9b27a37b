// Runs work that starts servers, and removes their temporary folders however it ends.

import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { closeConnections } from './http-client.ts'

/** Resolves with an exit code: 0 if `work` returns true. `end` is aborted by Ctrl-C. */
export async function inTemporaryFolder(name: string, work: (end: AbortSignal) => Promise<boolean>): Promise<number> {
  process.setMaxListeners(100) // each child process adds an exit listener
  // Servers create their temporary folders in it, so removing it removes all of them.
  const folder = mkdtempSync(join(tmpdir(), `sluice-${name}-run-`))
  chmodSync(folder, 0o711) // PostgreSQL runs as another user
  process.env.TMPDIR = folder
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const end = abortOnCtrlC(name)
  try {
    return (await work(end)) ? 0 : 1
  } catch (error) {
    if (!end.aborted) process.stderr.write(`${name}: ${error instanceof Error ? error.message : String(error)}\n`)
    return 1
  } finally {
    closeConnections()
  }
}

/** The first Ctrl-C ends the run gracefully, the second one immediately. */
function abortOnCtrlC(name: string): AbortSignal {
  const controller = new AbortController()
  const stop = () => {
    if (controller.signal.aborted) process.exit(1)
    process.stderr.write(`\n${name}: stopping everything\n`)
    controller.abort()
  }
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, stop)
  return controller.signal
}
