// Sends decisions to each sink alone and to all together, first undisturbed, then with the sinks killed and restarted
// halfway. Every decision is in the totals of each sink, and each event was stored or counted as dropped.

import { mkdtempSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Guarantee } from '../guarantees.ts'
import { getText } from '../http-client.ts'
import { ServiceNode } from '../service-node.ts'
import { EventLoad, RULES } from './event-load.ts'
import { type Contents, type EventSink, missingSinks, SINKS, type SinkName, startSink } from './event-sinks.ts'

export type EventsSize = {
  readonly seconds: number
  /** Decisions a second for one sink, and for all together. */
  readonly rate: number
  readonly allRate: number
  readonly outageSeconds: number
  /** Only all sinks together. */
  readonly isShort: boolean
}

const TOKEN = 'token-of-the-soak-test'
const SETTLE_SECONDS_MAX = 120
const POLL_MS = 250
/** Events a second that the embedded sink stores; it drops others on purpose, admissions first. */
const EMBEDDED_RATE_MAX = 1000
/** A slower load would prove less than the report says. */
const RATE_SHARE_MIN = 0.9
/** A sink never delays a check. Generous, because the load and all servers share the machine. */
const OUTAGE_P99 = { ms: 250, timesUndisturbed: 3 } as const

type Step = { readonly sinks: readonly SinkName[]; readonly rate: number; readonly isKilled: boolean }

export async function events(size: EventsSize, end: AbortSignal): Promise<Guarantee[]> {
  const missing = missingSinks()
  if (missing.length > 0) {
    process.stdout.write(`  skipped: ${missing.join('; ')}\n`)
    return []
  }
  const guarantees: Guarantee[] = []
  process.stdout.write(`${row(HEAD)}\n`)
  for (const isKilled of [false, true]) {
    const alone = size.isShort ? [] : SINKS.map((name): Step => ({ sinks: [name], rate: size.rate, isKilled }))
    for (const step of [...alone, { sinks: SINKS, rate: size.allRate, isKilled }]) {
      if (end.aborted) return guarantees
      const failed = (error: Error): Guarantee[] => [{ held: false, text: `${stepName(step)}: ${error.message}` }]
      guarantees.push(...(await runStep(step, size).catch(failed)))
    }
  }
  return guarantees
}

async function runStep(step: Step, size: EventsSize): Promise<Guarantee[]> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sluice-events-node-'))
  const sinks: EventSink[] = []
  let node: ServiceNode | undefined
  try {
    for (const name of step.sinks) sinks.push(await startSink(name, dataDir, step.isKilled))
    node = await startNode(dataDir, sinks)
    const load = new EventLoad(node)
    const startedMs = performance.now()
    const p99Ms = await underLoad(load, step, size, sinks)
    const loadSeconds = (performance.now() - startedMs) / 1000
    const counts = await settledCounts(node)
    await node.drain()
    const guarantees: Guarantee[] = []
    for (const sink of sinks) {
      const contents = await sink.contents()
      const counted = countsOf(counts, sink.name)
      printRow(step, sink.name, load, counted, contents, p99Ms)
      guarantees.push(guarantee({ step, sink: sink.name, load, counted, contents, p99Ms, loadSeconds }))
    }
    return guarantees
  } finally {
    await node?.stop()
    for (const sink of sinks) await sink.stop()
  }
}

async function startNode(dataDir: string, sinks: readonly EventSink[]): Promise<ServiceNode> {
  const isEmbedded = sinks.some(({ name }) => name === 'embedded')
  const own = ['--data-dir', dataDir, '--admin-token', TOKEN, '--drain-ms', '0', '--events-sample', '1']
  const off = isEmbedded ? [] : ['--events-sink', 'embedded=off']
  const node = await ServiceNode.start([...own, ...off, ...sinks.flatMap(({ args }) => args)])
  const answer = await fetch(new URL('/api/v1/rate-limit/rule-set', node.address), {
    method: 'PUT',
    headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
    body: JSON.stringify(RULES),
  })
  if (!answer.ok) throw new Error(`the rules were rejected with ${answer.status}: ${await answer.text()}`)
  return node
}

type P99Ms = { readonly before: number; readonly outage: number; readonly after: number }

/** The outage is in the middle; undisturbed, the same part of the time is measured. */
async function underLoad(load: EventLoad, step: Step, size: EventsSize, sinks: readonly EventSink[]): Promise<P99Ms> {
  const quietMs = ((size.seconds - size.outageSeconds) * 1000) / 2
  let [before, outage, after] = [0, 0, 0]
  await load.during(step.rate, async () => {
    await sleep(quietMs)
    before = load.takeP99Ms()
    if (step.isKilled) await Promise.all(sinks.map((sink) => sink.kill()))
    await sleep(size.outageSeconds * 1000)
    if (step.isKilled) await Promise.all(sinks.map((sink) => sink.restart()))
    outage = load.takeP99Ms()
    await sleep(quietMs)
    after = load.takeP99Ms()
  })
  return { before, outage, after }
}

/** Waits until no event is pending. */
async function settledCounts(node: ServiceNode): Promise<string> {
  const endMs = performance.now() + SETTLE_SECONDS_MAX * 1000
  for (;;) {
    const metrics = await getText(new URL('/metrics', node.address))
    const pending = [...metrics.matchAll(/^sluice_events_pending\{.*\} (\d+)$/gm)]
    const isSettled = pending.length > 0 && pending.every(([, count]) => count === '0')
    // A batch of rollups alone has no pending event, but a lag.
    if (isSettled && !/^sluice_events_sink_lag_seconds\{.*\} (?!0$)/m.test(metrics)) return metrics
    if (performance.now() > endMs) return metrics
    await sleep(POLL_MS)
  }
}

type Counted = {
  readonly decided: number
  readonly sampledOut: number
  readonly stored: number
  readonly dropped: number
  readonly pending: number
  readonly uncounted: number
}

function countsOf(metrics: string, sink: SinkName): Counted {
  const value = (name: string, labels = `{sink="${sink}"}`) => {
    const line = metrics.split('\n').find((one) => one.startsWith(`sluice_events_${name}${labels} `))
    return Number(line?.split(' ')[1] ?? Number.NaN)
  }
  return {
    decided: value('decided_total', ''),
    sampledOut: value('sampled_out_total'),
    stored: value('stored_total'),
    dropped: value('dropped_total'),
    pending: value('pending'),
    uncounted: value('uncounted_total'),
  }
}

type Result = {
  readonly step: Step
  readonly sink: SinkName
  readonly load: EventLoad
  readonly loadSeconds: number
  readonly counted: Counted
  readonly contents: Contents
  readonly p99Ms: P99Ms
}

function guarantee({ step, sink, load, loadSeconds, counted, contents, p99Ms }: Result): Guarantee {
  const { decided, sampledOut, stored, dropped, pending, uncounted } = counted
  const { events: found, decisions = decided } = contents
  const rate = load.decided / loadSeconds
  const checks: Readonly<Record<string, boolean>> = {
    'no check failed': load.failed === 0,
    [`at least ${RATE_SHARE_MIN * step.rate} decisions a second`]: rate >= RATE_SHARE_MIN * step.rate,
    'checks as fast during the outage': !step.isKilled || p99Ms.outage <= outageP99MsMax(p99Ms),
    'no event dropped without an outage': step.isKilled || dropped === 0 || isCapped(sink, step),
    'decided = counted by the client': decided === load.decided,
    'decided = sampled out + stored + dropped + pending': decided === sampledOut + stored + dropped + pending,
    'everything settled': pending === 0,
    'events in the sink = stored': found === stored,
    'totals in the sink = counted by the client': decisions === load.decided && uncounted === 0,
  }
  const broken = Object.keys(checks).filter((name) => checks[name] !== true)
  const title = `${stepName(step)}, ${sink}`
  const counts = `${load.decided} decisions, ${Math.round(rate)} a second, ${stored} stored, ${dropped} dropped`
  return {
    held: broken.length === 0,
    text: `${title}: ${broken.length === 0 ? counts : `not ${broken.join(', not ')}`}`,
  }
}

function outageP99MsMax({ before, after }: P99Ms): number {
  return Math.max(OUTAGE_P99.ms, OUTAGE_P99.timesUndisturbed * Math.max(before, after))
}

function isCapped(sink: SinkName, { rate }: Step): boolean {
  return sink === 'embedded' && rate > EMBEDDED_RATE_MAX
}

function stepName({ sinks, isKilled }: Step): string {
  return `${sinks.length === 1 ? 'alone' : 'all'}${isKilled ? ', killed' : ''}`
}

const HEAD = [
  ...['step', 'sink', 'rate/s', 'client', 'failed', 'decided', 'stored', 'dropped', 'pending', 'in sink', 'totals'],
  ...['p99 ms before/outage/after', 'load'],
]
const WIDTHS = [13, 10, 7, 8, 6, 8, 8, 8, 8, 8, 8, 27, 5]

function printRow(step: Step, sink: SinkName, load: EventLoad, counted: Counted, contents: Contents, p99: P99Ms): void {
  const { decided, stored, dropped, pending } = counted
  const numbers = [load.decided, load.failed, decided, stored, dropped, pending, contents.events]
  const times = [p99.before, p99.outage, p99.after].map((ms) => ms.toFixed(1)).join(' / ')
  const totals = contents.decisions === undefined ? '–' : String(contents.decisions)
  const cells = [stepName(step), sink, String(step.rate), ...numbers.map(String), totals, times]
  process.stdout.write(`${row([...cells, (loadavg()[0] ?? 0).toFixed(1)])}\n`)
}

function row(cells: readonly string[]): string {
  const pad = (cell: string, column: number) => {
    const width = WIDTHS[column] ?? 0
    return column < 2 ? cell.padEnd(width) : cell.padStart(width)
  }
  return `  ${cells.map(pad).join('  ').trimEnd()}`
}
