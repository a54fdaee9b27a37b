// Judges times on a machine that is busy with other work: without the time that this process or Redis did not run.

import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { onTestFinished, vi } from 'vitest'

const INTERVAL_MS = 5
/** A longer round means that the machine stalled. */
const ROUND_MS_MAX = 25
const PATIENCE_MS = 60_000

/**
 * Repeats an assertion until it holds, for `ms` of run time. However long a round takes, it counts as at most
 * ROUND_MS_MAX, so a process or server that gets no processor does not fail the test.
 */
export async function withinRunTime(ms: number, assertion: () => void | Promise<void>): Promise<void> {
  let ranMs = 0
  let lastMs = performance.now()
  let failure: { readonly error: unknown } | undefined
  const round = async () => {
    const nowMs = performance.now()
    ranMs += Math.min(nowMs - lastMs, ROUND_MS_MAX)
    lastMs = nowMs
    try {
      await assertion()
    } catch (error) {
      if (ranMs < ms) throw error
      failure = { error }
    }
  }
  await vi.waitFor(round, { timeout: PATIENCE_MS, interval: INTERVAL_MS })
  if (failure !== undefined) throw failure.error
}

/** Sends PING after PING; reports the longest time between two replies, the wait before each PING subtracted. */
const PINGS = `
  const { connect } = require('node:net')
  const { parentPort, workerData } = require('node:worker_threads')
  const { port, intervalMs } = workerData
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  let [longestMs, lastMs, isAsked] = [0, performance.now(), false]
  const ping = () => socket.write('PING\\r\\n')
  parentPort.on('message', () => { isAsked = true })
  socket.on('connect', ping)
  socket.on('data', () => {
    const nowMs = performance.now()
    longestMs = Math.max(longestMs, nowMs - lastMs - intervalMs)
    lastMs = nowMs
    if (isAsked) parentPort.postMessage(longestMs)
    if (isAsked) longestMs = 0
    isAsked = false
    setTimeout(ping, intervalMs)
  })
`

/**
 * Measures how long Redis stalls, from a thread with its own connection. Returns a function that resolves with the
 * longest stall since its last call. Errs high: includes stalls of that thread.
 */
export function watchStalls(redisUrl: string): () => Promise<number> {
  const workerData = { port: Number(new URL(redisUrl).port), intervalMs: INTERVAL_MS }
  const worker = new Worker(PINGS, { eval: true, workerData })
  onTestFinished(async () => void (await worker.terminate()))
  return async () => {
    const answer = once(worker, 'message') as Promise<[number]>
    worker.postMessage('report')
    const [longestMs] = await answer
    return longestMs
  }
}
