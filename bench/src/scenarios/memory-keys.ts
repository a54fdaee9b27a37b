// Ten million clients that have used up their daily limit: memory, longest pause while they were added, and whether any
// was forgotten. Other libraries are not measured: their maps cannot hold that many keys.

import { setTimeout as sleep } from 'node:timers/promises'
import { createLimiter, type Limiter } from 'sluice'
import { progress, resultOf } from '../measure.ts'
import type { Scenario } from '../report.ts'
import { Stopwatch } from '../stopwatch.ts'
import { freshKey } from '../zipf.ts'

const KEYS = 10_000_000
const WARM_UP = 100_000
const CHUNK = 1000
const SAMPLED = 1000

export const scenario: Scenario = {
  what: '10 M empty buckets through checkSync',
  targets: {
    bytes_per_key: { atMost: 48 },
    longest_pause_ms: { atMost: 20 },
    still_blocked: { atLeast: SAMPLED },
  },
  async run() {
    drain(onceADay(), WARM_UP) // warm-up: excludes compilation
    const limiter = onceADay()
    const beforeBytes = await residentBytes()
    const pauses = drain(limiter, KEYS)
    const bytesPerKey = ((await residentBytes()) - beforeBytes) / KEYS
    return {
      results: [
        once('resident memory', bytesPerKey, 'B/key'),
        once('longest checkSync', pauses.callMs, 'ms'),
        once(`longest ${CHUNK} keys in a row`, pauses.chunkMs, 'ms'),
        once(`longest ${CHUNK} keys, without run-queue waits`, pauses.ownChunkMs, 'ms'),
      ],
      ratios: {
        bytes_per_key: bytesPerKey,
        longest_pause_ms: pauses.ownChunkMs,
        still_blocked: stillBlocked(limiter),
      },
    }
  },
}

function onceADay(): Limiter {
  return createLimiter({ rules: [{ rule_id: 'once_a_day', scope: 'per_user', limit: 1, window_seconds: 86_400 }] })
}

/** `ownChunkMs` excludes run-queue waits, but includes garbage collection. */
type Pauses = { callMs: number; chunkMs: number; ownChunkMs: number }

function drain(limiter: Limiter, count: number): Pauses {
  const pauses = { callMs: 0, chunkMs: 0, ownChunkMs: 0 }
  const watch = new Stopwatch()
  for (let first = 0; first < count; first += CHUNK) {
    watch.start()
    drainChunk(limiter, first, pauses)
    watch.stop()
    pauses.chunkMs = Math.max(pauses.chunkMs, watch.wallMs)
    pauses.ownChunkMs = Math.max(pauses.ownChunkMs, watch.ownMs)
    if ((first + CHUNK) % (KEYS / 10) !== 0) continue
    progress(`${(first + CHUNK) / 1e6} M keys, longest pause so far ${pauses.ownChunkMs.toFixed(1)} ms`)
  }
  return pauses
}

function drainChunk(limiter: Limiter, first: number, pauses: Pauses): void {
  const keys: string[] = []
  for (let id = first; id < first + CHUNK; id++) keys.push(freshKey(id))
  let beforeMs = performance.now()
  for (const user of keys) {
    if (limiter.checkSync({ user })?.allowed !== true) throw new Error(`${user} was refused its first request`)
    const afterMs = performance.now()
    if (afterMs - beforeMs > pauses.callMs) pauses.callMs = afterMs - beforeMs
    beforeMs = afterMs
  }
}

function stillBlocked(limiter: Limiter): number {
  let blocked = 0
  for (let id = 0; id < KEYS; id += KEYS / SAMPLED) {
    if (limiter.checkSync({ user: freshKey(id) })?.allowed === false) blocked += 1
  }
  return blocked
}

async function residentBytes(): Promise<number> {
  for (let turn = 0; turn < 3; turn++) {
    globalThis.gc?.()
    await sleep(100) // memory is returned to the system in the background
  }
  return process.memoryUsage.rss()
}

function once(contender: string, value: number, unit: string) {
  return resultOf(contender, [value], unit)
}
