// Computes the figures of docs/guides/algorithms.md on a fake clock, from fixed seeds, and compares them with the page.
// After an intended change: UPDATE_FIGURES=1 npx vitest run figures

import { readFileSync, writeFileSync } from 'node:fs'
import { type AlgorithmName, compileLimit, createLimiter, type Limit, memoryStore } from 'sluice'
import { fakeClock, type Random, seededRandom } from 'sluice/testing'
import { expect, test } from 'vitest'
import type { Algorithm } from '../src/algorithms/algorithm.ts'
import { CONCURRENCY_UNITS_MAX, LOG_UNITS_MAX } from '../src/algorithms/limit.ts'
import { slidingWindow } from '../src/algorithms/sliding-window.ts'
import { slidingWindowLog } from '../src/algorithms/sliding-window-log.ts'
import { MAX_KEYS_DEFAULT } from '../src/store/memory.ts'

const GUIDE = new URL('../../../docs/guides/algorithms.md', import.meta.url)
const START = '<!-- figures:start -->'
const END = '<!-- figures:end -->'

const ADVICE = `docs/guides/algorithms.md is out of date. If the change is intended, run
  UPDATE_FIGURES=1 npx vitest run figures
which writes:`

const SECOND_US = 1_000_000
const MINUTE_US = 60 * SECOND_US
const LIMIT = 100

test('the figures of the algorithms guide match the code', () => {
  const page = readFileSync(GUIDE, 'utf8')
  const [before, found, after] = partsOf(page)
  const figures = [boundaryFigure(), errorFigure(), populationFigure(), bytesFigure(), delayFigure()].join('\n\n')
  if (process.env.UPDATE_FIGURES === '1') writeFileSync(GUIDE, `${before}${START}\n${figures}\n${END}${after}`)
  else if (found.trim() !== figures) expect.fail(`${ADVICE}\n\n${figures}\n\ninstead of:\n\n${found.trim()}`)
})

function partsOf(page: string): [before: string, block: string, after: string] {
  const [start, end] = [page.indexOf(START), page.indexOf(END)]
  if (start < 0 || end < start) throw new Error(`docs/guides/algorithms.md needs the lines "${START}" and "${END}"`)
  return [page.slice(0, start), page.slice(start + START.length, end), page.slice(end + END.length)]
}

// ---- At the boundary of a window

const AT_BOUNDARY = `**At the boundary.** A limit of 100 a minute, and a client that sends as many requests as it
can. First column: it starts one second before a minute ends and stops one second after. Second column: it starts at any
time and continues for three minutes.`
const COMPARED: readonly AlgorithmName[] = ['fixed_window', 'sliding_window', 'sliding_window_log', 'token_bucket']

function boundaryFigure(): string {
  const rows = COMPARED.map((algorithm) => {
    const around = greedy(algorithm, 59 * SECOND_US, 2 * SECOND_US).length
    const starts = Array.from({ length: 600 }, (_, tenth) => (tenth * SECOND_US) / 10)
    const most = starts.map((startUs) => mostWithinAMinute(greedy(algorithm, startUs, 3 * MINUTE_US)))
    return [code(algorithm), String(around), String(Math.max(...most))]
  })
  const head = ['algorithm', 'admitted in the 2 s around the boundary', 'most in any 60 s']
  return `${AT_BOUNDARY}\n\n${table(head, rows)}`
}

/** Admission times of a client that retries exactly when a refusal says. */
function greedy(algorithm: AlgorithmName, startUs: number, lengthUs: number): number[] {
  const clock = fakeClock()
  const store = memoryStore({ clock })
  const limit = perMinute(algorithm)
  clock.advanceUs(startUs)
  const endUs = clock.nowUs() + lengthUs
  const times: number[] = []
  while (clock.nowUs() < endUs) {
    const { granted, retryAfterUs } = takeOne(store, limit)
    if (granted) times.push(clock.nowUs())
    else clock.advanceUs(retryAfterUs)
  }
  return times
}

function mostWithinAMinute(times: readonly number[]): number {
  let most = 0
  let first = 0
  times.forEach((timeUs, index) => {
    while ((times[first] ?? timeUs) <= timeUs - MINUTE_US) first += 1
    most = Math.max(most, index - first + 1)
  })
  return most
}

// ---- The sliding window against the log

const REQUESTS = 50_000
const ERROR = `**The error of the sliding window.** The same ${thousands(REQUESTS)} requests of one client against a
sliding window and against the log, both of 100 a minute. Load is relative to the limit. Random: independent
arrivals. In bursts: 10 to 50 requests, 20 ms apart, then a pause.`
const LOADS = [0.5, 0.8, 1, 1.5]
const TRAFFIC: Readonly<Record<string, (random: Random, meanGapUs: number) => () => number>> = {
  random: (random, meanGapUs) => () => exponential(random, meanGapUs),
  'in bursts': bursts,
}

function errorFigure(): string {
  const rows = Object.entries(TRAFFIC).flatMap(([name, traffic]) =>
    LOADS.map((load) => [name, `${load * 100} %`, ...compared(traffic(seededRandom(7), MINUTE_US / LIMIT / load))]),
  )
  const head = ['traffic', 'load', 'decisions that differ', 'window refuses, log admits', 'window admits, log refuses']
  return `${ERROR}\n\n${table([...head, 'admitted, log = 100 %', 'most in any 60 s'], rows)}`
}

/** The two count separately, so one difference can cause later ones. */
function compared(gapUs: () => number): string[] {
  const clock = fakeClock()
  const store = memoryStore({ clock })
  const [byWindow, byLog] = [perMinute('sliding_window'), perMinute('sliding_window_log')]
  const counts = { stricter: 0, looser: 0, log: 0 }
  const times: number[] = []
  for (let request = 0; request < REQUESTS; request += 1) {
    clock.advanceUs(gapUs())
    const [window, log] = [takeOne(store, byWindow).granted, takeOne(store, byLog).granted]
    if (window) times.push(clock.nowUs())
    if (log) counts.log += 1
    if (log && !window) counts.stricter += 1
    if (window && !log) counts.looser += 1
  }
  const shares = [counts.stricter + counts.looser, counts.stricter, counts.looser].map((count) => count / REQUESTS)
  return [...shares, times.length / counts.log].map(percent).concat(String(mostWithinAMinute(times)))
}

// ---- The sliding window against the log, for many clients

const DECISIONS = 500_000
const POPULATION = `**Over many clients.** The error is usually given as a share of all decisions:
[0.003 % of 400 million requests](https://blog.cloudflare.com/counting-things-a-lot-of-different-things/), most of them
from clients far below the limit. Here, ${thousands(DECISIONS)} decisions for clients with a limit of 100 a minute, for
ten minutes each. Arrivals are random, or in the bursts of the table above.`
/** Load of a client: relative to the limit, at most `most`, or with the chance `rare` as high as `heavy`. */
type Population = {
  readonly name: string
  readonly most: number
  readonly rare?: number
  readonly heavy?: number
  readonly traffic?: string
}
const POPULATIONS: readonly Population[] = [
  { name: 'every client below 50 %', most: 0.5 },
  { name: 'every client below 70 %', most: 0.7 },
  { name: 'every client below 80 %', most: 0.8 },
  { name: 'every client below 100 %', most: 1 },
  { name: 'every client below 10 %, in bursts', most: 0.1, traffic: 'in bursts' },
  { name: 'every client below 30 %, in bursts', most: 0.3, traffic: 'in bursts' },
  { name: 'below 10 %, one in 1000 at 150 %', most: 0.1, rare: 0.001, heavy: 1.5 },
  { name: 'below 10 %, one in 100 at 300 %', most: 0.1, rare: 0.01, heavy: 3 },
]

function populationFigure(): string {
  const rows = POPULATIONS.map((population) => {
    const { differing, byHeavy } = differences(population)
    const heavy = population.heavy === undefined ? '' : `${(byHeavy * 100).toFixed(1)} %`
    return [population.name, `${(differing * 100).toFixed(4)} %`, heavy]
  })
  return `${POPULATION}\n\n${table(['clients', 'decisions that differ', 'requests of heavy clients'], rows)}`
}

function differences({ most, rare = 0, heavy = 0, traffic = 'random' }: Population): {
  differing: number
  byHeavy: number
} {
  const random = seededRandom(11)
  const [byWindow, byLog] = [perMinute('sliding_window'), perMinute('sliding_window_log')]
  const counts = { all: 0, differing: 0, heavy: 0 }
  while (counts.all < DECISIONS) {
    const isHeavy = random.next() < rare
    const meanGapUs = MINUTE_US / LIMIT / (isHeavy ? heavy : random.next() * most)
    const [window, log] = [slidingWindow.fresh(), slidingWindowLog.fresh()]
    const startUs = random.between(0, MINUTE_US)
    const gapUs = TRAFFIC[traffic]?.(random, meanGapUs) ?? expect.fail(traffic)
    for (let nowUs = startUs + gapUs(); nowUs < startUs + 10 * MINUTE_US; nowUs += gapUs()) {
      const windowAdmits = admits(slidingWindow, byWindow, window, nowUs)
      counts.all += 1
      if (windowAdmits !== admits(slidingWindowLog, byLog, log, nowUs)) counts.differing += 1
      if (isHeavy) counts.heavy += 1
    }
  }
  return { differing: counts.differing / counts.all, byHeavy: counts.heavy / counts.all }
}

function admits<State>(algorithm: Algorithm<State>, limit: Limit, state: State, nowUs: number): boolean {
  algorithm.advance(limit, state, nowUs)
  if (algorithm.used(limit, state, nowUs) >= limit.capacity) return false
  algorithm.charge(limit, state, nowUs, 1)
  return true
}

function bursts(random: Random, meanGapUs: number): () => number {
  const [least, most, apartUs] = [10, 50, 20_000]
  const meanPauseUs = ((least + most) / 2) * (meanGapUs - apartUs) + apartUs
  let left = 0
  return () => {
    if (left === 0) {
      left = random.between(least, most) - 1
      return exponential(random, meanPauseUs)
    }
    left -= 1
    return apartUs
  }
}

function exponential(random: Random, meanUs: number): number {
  return Math.round(-Math.log(1 - random.next()) * meanUs)
}

// ---- Bytes per key

const BYTES = `**Bytes per key in the memory store**, computed from its layout: a large table alternately fills up and
grows, hence the range. \`npm run bench -- memory-keys\` measures it. Logs and permits also have
object overhead.`

function bytesFigure(): string {
  const layout = readFileSync(new URL('../src/store/bucket-table.ts', import.meta.url), 'utf8')
  const memory = readFileSync(new URL('../src/store/memory.ts', import.meta.url), 'utf8')
  const entryBytes = 4 * constantOf(layout, 'ENTRY_WORDS')
  const leastBytes = entryBytes / constantOf(layout, 'LOAD_MAX')
  // A segment that was split has half of its chunks, all full; the next bucket adds a chunk.
  const half = constantOf(layout, 'SEGMENT_CHUNKS_MAX') / 2
  const mostBytes = (leastBytes * (half + 1)) / half
  const packed = `an entry of ${entryBytes} bytes`
  const range = `${Math.round(leastBytes)} to ${Math.round(mostBytes)}`
  const lists = thousands(constantOf(memory, 'LISTS_MAX'))
  const rows = [
    ['token, leaky, fixed, sliding', packed, range, thousands(MAX_KEYS_DEFAULT)],
    [code('sliding_window_log'), `up to ${entriesOfLog(LOG_UNITS_MAX)} entries`, `${LOG_ENTRY_BYTES} per entry`, lists],
    [code('concurrency'), `up to ${CONCURRENCY_UNITS_MAX} permits`, 'an object per permit', lists],
  ]
  return `${BYTES}\n\n${table(['algorithm', 'a key is', 'bytes', 'keys at most'], rows)}`
}

/** A time and a count. */
const LOG_ENTRY_BYTES = 2 * Float64Array.BYTES_PER_ELEMENT

/** Entries of a full log whose requests all have different times. */
function entriesOfLog(units: number): number {
  const limit = perMinute('sliding_window_log', units)
  const log = slidingWindowLog.fresh()
  for (let us = 0; us < units; us += 1) slidingWindowLog.charge(limit, log, us, 1)
  return log.entries.length / 2
}

function constantOf(source: string, name: string): number {
  const digits = new RegExp(`^const ${name} = ([\\d_.]+)$`, 'm').exec(source)?.[1]
  if (digits === undefined) throw new Error(`the constant ${name} is missing: update this computation`)
  return Number(digits.replaceAll('_', ''))
}

// ---- Delays of the leaky bucket

function delayFigure(): string {
  const clock = fakeClock()
  const rule = { rule_id: 'r', algorithm: 'leaky_bucket', limit: 60, window: '1m', burst: 5 }
  const limiter = createLimiter({ rules: [rule], store: memoryStore({ clock }) })
  const rows = [0, 0, 0, 0, 0, 0, 2500, 2500, 2500].map((atMs, index, all) => {
    clock.advanceMs(atMs - (all[index - 1] ?? 0))
    const { allowed, delayMs, retryAfterMs } = limiter.checkSync({}) ?? {}
    const answer = allowed ? [seconds(delayMs), seconds(atMs + (delayMs ?? 0))] : ['refused', '']
    return [String(index + 1), seconds(atMs), ...answer, allowed ? '' : seconds(retryAfterMs ?? undefined)]
  })
  const title =
    '**Delays of the leaky bucket.** 60 a minute with `burst: 5`: the queue holds 5 and drains one a second.'
  return `${title}\n\n${table(['request', 'arrives at', 'delay', 'continues at', 'retry after'], rows)}`
}

// ----

function perMinute(algorithm: AlgorithmName, units = LIMIT): Limit {
  return compileLimit({ id: algorithm, algorithm, units, windowUs: MINUTE_US })
}

function takeOne(store: ReturnType<typeof memoryStore>, limit: Limit): { granted: boolean; retryAfterUs: number } {
  const taken = store.takeSync?.({ charges: [{ limit, owner: 'a', detail: '', min: 1, max: 1, kind: 'enforce' }] })
  const [grant] = taken?.grants ?? []
  if (taken === undefined || grant === undefined) throw new Error('the memory store must be synchronous')
  return { granted: taken.granted, retryAfterUs: grant.retryAfterUs }
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, head.map(() => '---'), ...rows]
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}

function code(name: string): string {
  return `\`${name}\``
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`
}

function seconds(ms: number | undefined): string {
  return ms === undefined ? '' : `${(ms / 1000).toFixed(1)} s`
}

function thousands(count: number): string {
  return count.toLocaleString('en-US')
}
