// Preloaded into a service (`node --import`): measures the CPU time of the longest turn of its event loop. A timer of
// 1 ms reads the CPU time of the main thread. It fires at most once per turn, so the time between two readings is one
// turn and about a millisecond of others. Time without a processor does not count. Errs high. Linux only.

import { openSync, readSync } from 'node:fs'

const TICK_MS = 1
const schedule = openSync('/proc/thread-self/schedstat', 'r')
const bytes = Buffer.alloc(128)
let longestMs = 0
let lastMs = 0
let timer: NodeJS.Timeout | undefined

/** Format: "<ns running> <ns runnable but waiting> <timeslices>". */
function spentMs(): number {
  const length = readSync(schedule, bytes, 0, bytes.length, 0)
  return Number(bytes.toString('latin1', 0, length).split(' ')[0]) / 1e6
}

function read(): void {
  const nowMs = spentMs()
  longestMs = Math.max(longestMs, nowMs - lastMs)
  lastMs = nowMs
}

function tick(): void {
  read()
  timer = setTimeout(tick, TICK_MS)
}

/** `start` begins a measurement; `stop` ends it. Each is answered, `stop` with the longest turn in ms. */
process.on('message', (message) => {
  if (message === 'start') {
    longestMs = 0
    lastMs = spentMs()
    clearTimeout(timer)
    tick()
    process.send?.({})
  } else if (message === 'stop') {
    read()
    clearTimeout(timer)
    process.send?.({ longestMs })
  }
})
process.on('disconnect', () => process.exit(1)) // the benchmark was interrupted
process.channel?.unref()
