// `--workers n`: several processes on one port. Each is a whole node with leases of its own, so they need a store that
// all share. This process only watches over them: it starts again what dies, and ends all of them when it is asked to.

import cluster, { type Worker } from 'node:cluster'
import { once } from 'node:events'
import type { Log } from '../log.ts'
import { endSignal } from './signals.ts'

const RESTART_MS = 1000

/** Whether this process is one of several, and which: the first one speaks for all. */
export function workerNumber(): number {
  return cluster.isWorker ? (cluster.worker?.id ?? 0) : 0
}

/** Resolves with the exit code once all workers have ended. */
export async function superviseWorkers(count: number, log: Log): Promise<number> {
  let ending = false
  let failed: number | undefined
  const endAll = (signal: NodeJS.Signals) => {
    ending = true
    for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill(signal)
  }
  const listening = new Set<number>()
  cluster.on('listening', ({ id }) => listening.add(id))
  cluster.on('exit', ({ id, process: { pid } }: Worker, code: number, signal: string | null) => {
    if (ending) return
    // One that never listened has said why: the settings or the rules are wrong, and trying again would not help.
    if (!listening.has(id)) {
      failed = code || 1
      return endAll('SIGTERM')
    }
    log.error({ pid, code, signal }, 'a worker died: another one takes its place')
    setTimeout(() => !ending && cluster.fork(), RESTART_MS)
  })
  const workers = Array.from({ length: count }, () => cluster.fork())
  const ended = Promise.all(workers.map((worker) => once(worker, 'exit')))
  const asked = await Promise.race([endSignal(), ended.then(() => undefined)])
  if (asked !== undefined) {
    endAll(asked.name)
    await allGone()
  }
  return failed ?? 0
}

async function allGone(): Promise<void> {
  for (const worker of Object.values(cluster.workers ?? {})) {
    if (worker !== undefined && !worker.isDead()) await once(worker, 'exit')
  }
}
