// Ten million clients, each of whom has used up its limit for the day: what they weigh, the longest that anybody had to
// wait while they came, and whether any of them was forgotten. No peer: their maps do not hold so many.

import { PerformanceObserver } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { createLimiter, type Limiter } from 'sluice'
import { progress, resultOf } from '../measure.ts'
import type { Scenario } from '../report.ts'
import { freshKey } from '../zipf.ts'

const KEYS = 10_000_000
const CHUNK = 1000
const SAMPLED = 1000

export const scenario: Scenario = {
  what: '10 M drained keys through checkSync',
  targets: {
    bytes_per_key: { atMost: 48 },
    longest_pause_ms: { atMost: 20 },
    still_blocked: { atLeast: SAMPLED },
  },
  async run() {
    const rule = { rule_id: 'once_a_day', scope: 'per_user', limit: 1, window_seconds: 86_400 }
    const limiter = createLimiter({ rules: [rule] })
    const beforeBytes = await residentBytes()
    const pauses = await drain(limiter)
    const bytesPerKey = ((await residentBytes()) - beforeBytes) / KEYS
    return {
      results: [
        once('resident memory', bytesPerKey, 'B/key'),
        once('longest checkSync', pauses.callMs, 'ms'),
        once(`longest ${CHUNK} checkSync in a row`, pauses.chunkMs, 'ms'),
        once('longest garbage collection', pauses.collectionMs, 'ms'),
      ],
      ratios: {
        bytes_per_key: bytesPerKey,
        longest_pause_ms: Math.max(pauses.callMs, pauses.chunkMs, pauses.collectionMs),
        still_blocked: stillBlocked(limiter),
      },
    }
  },
}

type Pauses = { callMs: number; chunkMs: number; collectionMs: number }

/** The string of a key is made before its chunk is timed. Collections are watched, as they may fall between chunks. */
async function drain(limiter: Limiter): Promise<Pauses> {
  const pauses = { callMs: 0, chunkMs: 0, collectionMs: 0 }
  const watch = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) pauses.collectionMs = Math.max(pauses.collectionMs, duration)
  })
  watch.observe({ entryTypes: ['gc'] })
  for (let first = 0; first < KEYS; first += CHUNK) {
    drainChunk(limiter, first, pauses)
    if (first % (KEYS / 10) !== 0) continue
    progress(`${first / 1e6} M keys, longest chunk so far ${pauses.chunkMs.toFixed(1)} ms`)
    await sleep(1) // lets the observer be told
  }
  await sleep(1)
  watch.disconnect()
  return pauses
}

function drainChunk(limiter: Limiter, first: number, pauses: Pauses): void {
  const keys: string[] = []
  for (let id = first; id < first + CHUNK; id++) keys.push(freshKey(id))
  const startedMs = performance.now()
  let beforeMs = startedMs
  for (const user of keys) {
    if (limiter.checkSync({ user })?.allowed !== true) throw new Error(`${user} was refused its first request`)
    const afterMs = performance.now()
    if (afterMs - beforeMs > pauses.callMs) pauses.callMs = afterMs - beforeMs
    beforeMs = afterMs
  }
  pauses.chunkMs = Math.max(pauses.chunkMs, beforeMs - startedMs)
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
    await sleep(100) // pages are returned in the background
  }
  return process.memoryUsage.rss()
}

function once(contender: string, value: number, unit: string) {
  return resultOf(contender, [value], unit)
}
