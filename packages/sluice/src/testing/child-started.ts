// A server that a test has started is up when it says so.

import type { ChildProcess } from 'node:child_process'

/** Waits until what `child` prints, on standard output or error, matches. Rejects when it ends before. */
export function childStarted(child: ChildProcess, name: string, says: RegExp): Promise<void> {
  return new Promise((resolve, reject) => {
    let output = ''
    let up = false
    const read = (chunk: Buffer) => {
      if (up) return // or all that it ever prints would be kept
      output += chunk.toString()
      up = says.test(output)
      if (up) resolve()
    }
    child.stdout?.on('data', read)
    child.stderr?.on('data', read)
    child.once('error', (error) => reject(new Error(`${name} cannot be started: is it installed?`, { cause: error })))
    child.once('exit', () => reject(new Error(`${name} ended at once:\n${output}`)))
  })
}
