// Waits for a child process of a test to report that it is ready.

import type { ChildProcess } from 'node:child_process'

/** Resolves when the output of `child` (stdout or stderr) matches. Rejects if it exits first. */
export function childStarted(child: ChildProcess, name: string, pattern: RegExp): Promise<void> {
  return new Promise((resolve, reject) => {
    let output = ''
    let up = false
    const read = (chunk: Buffer) => {
      if (up) return // do not accumulate later output
      output += chunk.toString()
      up = pattern.test(output)
      if (up) resolve()
    }
    child.stdout?.on('data', read)
    child.stderr?.on('data', read)
    child.once('error', (error) => reject(new Error(`${name} cannot be started; is it installed?`, { cause: error })))
    child.once('exit', () => reject(new Error(`${name} exited during startup:\n${output}`)))
  })
}
