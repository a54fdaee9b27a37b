// How long this thread has been ready to run while others had the processor: what a busy machine, not our code, took.

import { openSync, readSync } from 'node:fs'

/** Milliseconds waited so far; always 0 where the kernel does not tell. */
export function waitedClock(): () => number {
  const bytes = Buffer.alloc(128)
  const file = open()
  if (file === undefined) return () => 0
  // "<ns on the processor> <ns ready but waiting> <turns>"
  return () => Number(bytes.toString('latin1', 0, readSync(file, bytes, 0, 128, 0)).split(' ')[1]) / 1e6
}

function open(): number | undefined {
  try {
    return openSync('/proc/thread-self/schedstat', 'r')
  } catch {
    return undefined
  }
}
