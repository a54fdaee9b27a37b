// `--workers n`: several processes on one port. Each is a node with its own leases, so they need a shared store. This
// process supervises them: it replaces crashed workers, forwards termination signals, kills workers that do not stop in
// time, and relays messages.

import cluster, { type Worker } from 'node:cluster'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { resolve as resolvePath } from 'node:path'
import { readKeySecret } from '../events/key-secret.ts'
import type { Log } from '../log.ts'
import { SETTINGS, type Settings } from '../settings/settings.ts'
import { WorkerCounts } from '../workers/counts-file.ts'
import { logPolicyDecisions } from '../workers/policy-log.ts'
import { WorkerChannels } from '../workers/worker-channels.ts'
import { EXIT } from './exit-codes.ts'
import { limitStop, terminationSignal } from './signals.ts'

const RESTART_MS = 1000

/** Resolves with the exit code once all workers have exited. */
export async function superviseWorkers(count: number, settings: Settings, log: Log): Promise<number> {
  const keySecret = sharedSecret(settings)
  const counts = new WorkerCounts(count)
  cluster.setupPrimary({ serialization: 'advanced', stdio: counts.stdio }) // metrics are large messages
  const channels = new WorkerChannels(counts, log)
  const logRest = logPolicyDecisions(() => channels.policyReasons(), log)
  const fork = () => {
    const worker = channels.fork({ [SETTINGS.keySecret.env]: keySecret })
    worker.on('error', (error) => log.event('worker_failed', { err: error, pid: worker.process.pid }))
  }
  let ending = false
  const endAll = (signal: NodeJS.Signals) => {
    ending = true
    for (const worker of living()) worker.process.kill(signal)
  }
  const failed = new Promise<number>((resolve) => {
    let started = false
    cluster.on('listening', () => {
      started = true
    })
    cluster.on('exit', ({ process: { pid } }: Worker, code: number, signal: string | null) => {
      if (ending) return
      // A worker that ends by itself before any of them listens has reported why: invalid settings or rules. A retry
      // would not help. One that was killed has reported nothing.
      if (!started && signal === null) return resolve(code || 1)
      log.event('worker_exited', { pid, code, signal })
      channels.replaced()
      setTimeout(() => !ending && fork(), RESTART_MS)
    })
  })
  for (let forked = 0; forked < count; forked += 1) fork()
  const ended = await Promise.race([terminationSignal(), failed])
  const signal = typeof ended === 'number' ? ({ name: 'SIGTERM', drains: true } as const) : ended
  endAll(signal.name)
  let exitCode = typeof ended === 'number' ? ended : EXIT.done
  void limitStop(Promise.resolve(signal), settings.drainMs, () => {
    exitCode ||= EXIT.failed
    for (const { process: worker } of living()) {
      log.event('worker_killed', { pid: worker.pid })
      worker.kill('SIGKILL')
    }
  })
  await Promise.all(living().map((worker) => once(worker, 'exit')))
  logRest()
  return exitCode
}

/**
 * Shared, because workers with different secrets would hash client keys differently. Without stored events, hashes
 * appear only in the log: a node that needs no data folder gets none.
 */
function sharedSecret({ keySecret, dataDir, rules, eventsSinks = [], eventsQuery }: Settings): string {
  const storesHashes = rules === undefined || eventsSinks.length > 0 || eventsQuery !== undefined
  if (keySecret === undefined && !storesHashes) return randomBytes(32).toString('hex')
  return readKeySecret(keySecret, resolvePath(dataDir))
}

function living(): Worker[] {
  return Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined && !worker.isDead()) as Worker[]
}
