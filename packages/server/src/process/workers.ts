// `--workers n`: several processes on one port. Each is a whole node with leases of its own, so they need a store that
// all share. This process supervises them: it replaces workers that die, ends all of them when it is asked to, and
// passes on what they have to know of each other.

import cluster, { type Worker } from 'node:cluster'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Log } from '../log.ts'
import { SETTINGS, type Settings } from '../settings/settings.ts'
import { Exchange } from '../workers/exchange.ts'
import { endSignal } from './signals.ts'

const RESTART_MS = 1000

/** Resolves with the exit code once all workers have ended. */
export async function superviseWorkers(count: number, settings: Settings, log: Log): Promise<number> {
  // Without a secret of its own each worker would hash client keys differently.
  const keySecret = settings.keySecret ?? randomBytes(32).toString('hex')
  cluster.setupPrimary({ serialization: 'advanced' }) // metrics pass through here as long texts
  const exchange = new Exchange()
  const fork = () => {
    const worker = cluster.fork({ [SETTINGS.keySecret.env]: keySecret })
    worker.on('error', (error) =>
      log.error({ err: error, pid: worker.process.pid }, 'worker cannot be started or reached'),
    )
    exchange.add(worker)
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
      // Before any worker has listened the settings or the rules are wrong: it has said so, and a retry would not help.
      if (!started) return resolve(code || 1)
      log.error({ pid, code, signal }, 'a worker died: another one takes its place')
      exchange.replaced()
      setTimeout(() => !ending && fork(), RESTART_MS)
    })
  })
  for (let forked = 0; forked < count; forked += 1) fork()
  const ended = await Promise.race([endSignal(), failed])
  endAll(typeof ended === 'number' ? 'SIGTERM' : ended.name)
  await Promise.all(living().map((worker) => once(worker, 'exit')))
  return typeof ended === 'number' ? ended : 0
}

function living(): Worker[] {
  return Object.values(cluster.workers ?? {}).filter((worker) => worker !== undefined && !worker.isDead()) as Worker[]
}
