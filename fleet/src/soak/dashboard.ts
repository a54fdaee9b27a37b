// The dashboard open in Chromium while a node decides thousands of requests a second: memory of page and node stays
// flat, and the pages stay smooth.

import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Browser, type CDPSession, chromium, type Page } from 'playwright-core'
import type { Guarantee } from '../guarantees.ts'
import { getText } from '../http-client.ts'
import { ServiceNode } from '../service-node.ts'
import { EventLoad, RULES } from './event-load.ts'

export type DashboardSize = { readonly seconds: number; readonly rate: number }

const TOKEN = 'token-of-the-dashboard-soak'
const PATHS = ['/?range=1m', '/live'] as const
const PROGRAMS = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium', '/usr/bin/chromium-browser']
const FRAMES_PER_SECOND_MIN = 30
/** Share of the load that must have been sent: a slower machine proves nothing about the promised rate. */
const SENT_SHARE_MIN = 0.9
/** Growth from the second third of the run to the last one; the first third fills caches and rings. */
const GROWTH_MAX = 0.1
/** Heaps of a few megabytes move by more than a tenth. */
const GROWTH_MB_MAX = 8
const SAMPLES = 30
/** Resident memory includes garbage between two collections: only the medians of a long run say something. */
const RESIDENT_SECONDS_MIN = 600
const COLLECT_SIGNAL = 'SIGUSR2'
/** Makes the node collect its garbage on a signal. */
const NODE_ARGS = ['--expose-gc', `--import=data:text/javascript,process.on('${COLLECT_SIGNAL}',()=>gc())`]

/** Megabytes. `heap`: of the node after a garbage collection, with buffers outside of the heap. */
type Sample = {
  readonly heap: number
  readonly resident: number
  readonly pages: readonly number[]
  readonly frames: readonly number[]
}
type Opened = { readonly page: Page; readonly devtools: CDPSession }

export async function dashboard(size: DashboardSize, end: AbortSignal): Promise<Guarantee[]> {
  const program = PROGRAMS.find((path) => existsSync(path))
  if (program === undefined) {
    process.stdout.write('  skipped: chromium is missing\n')
    return []
  }
  const dataDir = mkdtempSync(join(tmpdir(), 'sluice-dashboard-node-'))
  const args = ['--data-dir', dataDir, '--admin-token', TOKEN, '--drain-ms', '0']
  const node = await ServiceNode.start(args, { nodeArgs: NODE_ARGS })
  // One browser per page: a browser draws only the page in front.
  const launch = { executablePath: program, args: ['--no-sandbox', '--disable-dev-shm-usage'] }
  const browsers = await Promise.all(PATHS.map(() => chromium.launch(launch)))
  try {
    await putRules(node)
    const problems: string[] = []
    const pages = await Promise.all(browsers.map((one, index) => openPage(one, node, PATHS[index] ?? '/', problems)))
    const load = new EventLoad(node)
    const samples: Sample[] = []
    const startedMs = performance.now()
    await load.during(size.rate, async () => {
      for (let taken = 0; taken < SAMPLES && !end.aborted; taken += 1) {
        samples.push(await sample(node, pages, size.seconds / SAMPLES))
        printRow(samples)
      }
    })
    const sent = (load.decided * 1000) / (performance.now() - startedMs)
    return guarantees(samples, load, { ...size, sent }, problems)
  } finally {
    await Promise.all(browsers.map((one) => one.close()))
    await node.stop()
  }
}

async function putRules({ address }: ServiceNode): Promise<void> {
  const response = await fetch(new URL('/api/v1/rate-limit/rule-set', address), {
    method: 'PUT',
    headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
    body: JSON.stringify({ rules: RULES }),
  })
  if (!response.ok) throw new Error(`the rules were refused: ${await response.text()}`)
}

async function openPage(browser: Browser, { address }: ServiceNode, path: string, problems: string[]): Promise<Opened> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } })
  page.on('pageerror', ({ message }) => problems.push(message))
  page.on('console', (message) => {
    if (message.type() === 'error') problems.push(message.text())
  })
  await page.goto(new URL(path, address).href)
  await page.getByLabel('Token', { exact: true }).fill(TOKEN)
  await page.keyboard.press('Enter')
  await page.locator('#main h1').waitFor()
  await page.evaluate(COUNT_FRAMES)
  return { page, devtools: await page.context().newCDPSession(page) }
}

const COUNT_FRAMES = `(() => {
  window.frames_drawn = 0
  const draw = () => { window.frames_drawn += 1; requestAnimationFrame(draw) }
  requestAnimationFrame(draw)
})()`

/** Frames are counted while nothing measures; then memory, after a garbage collection. */
async function sample(node: ServiceNode, opened: readonly Opened[], seconds: number): Promise<Sample> {
  const drawn = () => Promise.all(opened.map(({ page }) => page.evaluate('window.frames_drawn') as Promise<number>))
  const [before, startedMs] = [await drawn(), performance.now()]
  await sleep(seconds * 1000)
  const [after, elapsedMs] = [await drawn(), performance.now() - startedMs]
  const pages = await Promise.all(opened.map(({ devtools }) => heapMb(devtools)))
  const frames = after.map((count, index) => ((count - (before[index] ?? 0)) * 1000) / elapsedMs)
  return { heap: await nodeHeapMb(node), resident: residentMb(node), pages, frames }
}

async function heapMb(devtools: CDPSession): Promise<number> {
  await devtools.send('HeapProfiler.collectGarbage')
  return (await devtools.send('Runtime.getHeapUsage')).usedSize / 1e6
}

/** The thread of the embedded database is not included: its memory is that of PostgreSQL, which has a fixed size. */
async function nodeHeapMb({ pid, address }: ServiceNode): Promise<number> {
  process.kill(pid, COLLECT_SIGNAL)
  const metrics = await getText(new URL('/metrics', address))
  const names = ['nodejs_heap_size_used_bytes', 'nodejs_external_memory_bytes']
  return names.reduce((sum, name) => sum + Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(metrics)?.[1]) / 1e6, 0)
}

function residentMb({ pid }: ServiceNode): number {
  return Number(execFileSync('ps', ['-o', 'rss=', '-p', String(pid)], { encoding: 'utf8' })) / 1000
}

function printRow(samples: readonly Sample[]): void {
  const newest = samples.at(-1)
  if (newest === undefined) return
  const pages = PATHS.map((path, index) => {
    return `${path} ${newest.pages[index]?.toFixed(1)} MB ${newest.frames[index]?.toFixed(0)} frames/s`
  })
  const node = `node ${newest.heap.toFixed(1)} of ${newest.resident.toFixed(0)} MB`
  process.stdout.write(`  ${samples.length}/${SAMPLES}  ${node}  ${pages.join('  ')}\n`)
}

type Rates = { readonly sent: number; readonly rate: number; readonly seconds: number }

function guarantees(
  samples: readonly Sample[],
  load: EventLoad,
  { sent, rate, seconds }: Rates,
  problems: string[],
): Guarantee[] {
  return [
    {
      held: sent >= SENT_SHARE_MIN * rate && load.failed === 0,
      text: `${rate} decisions/s: ${sent.toFixed(0)}/s, ${load.failed} failed`,
    },
    // The lowest of a third: between collection and reading, the load allocates some megabytes.
    flat(
      'heap of the node after garbage collections',
      samples.map(({ heap }) => heap),
      lowestOf,
    ),
    residentMemory(samples, seconds),
    ...PATHS.map((path, index) =>
      flat(
        `heap of the page ${path}`,
        samples.map(({ pages }) => pages[index] ?? 0),
      ),
    ),
    ...PATHS.map((path, index) => {
      const median = medianOf(samples.map(({ frames }) => frames[index] ?? 0))
      return {
        held: median >= FRAMES_PER_SECOND_MIN,
        text: `at least ${FRAMES_PER_SECOND_MIN} frames/s on ${path}: median ${median.toFixed(0)}`,
      }
    }),
    { held: problems.length === 0, text: `no error in the console: ${problems.slice(0, 3).join('; ') || 'none'}` },
  ]
}

function residentMemory(samples: readonly Sample[], seconds: number): Guarantee {
  const judged = flat(
    'resident memory of the node',
    samples.map(({ resident }) => resident),
  )
  if (seconds >= RESIDENT_SECONDS_MIN) return judged
  return { held: true, text: `not judged in ${seconds} s: ${judged.text}` }
}

function flat(name: string, values: readonly number[], summary = medianOf): Guarantee {
  const third = Math.floor(values.length / 3)
  const [middle, last] = [summary(values.slice(third, 2 * third)), summary(values.slice(2 * third))]
  const allowed = Math.max(middle * GROWTH_MAX, GROWTH_MB_MAX)
  return {
    held: last - middle <= allowed,
    text: `${name} is flat: ${middle.toFixed(1)} MB, then ${last.toFixed(1)} MB`,
  }
}

function medianOf(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0
}

function lowestOf(values: readonly number[]): number {
  return Math.min(...values)
}
