// Event counts of every worker, in a file without a name that the supervisor opens and all workers inherit. A write to
// it survives kill -9 of the worker; a message that waits in the IPC channel does not.

import { randomUUID } from 'node:crypto'
import { openSync, readSync, unlinkSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { CountsFile, PipelineTotals } from '../events/pipeline.ts'
import type { EventCounts } from '../metrics/event-metrics.ts'

/** Standard streams of a worker. The next one is the file. */
const STREAMS = ['inherit', 'inherit', 'inherit', 'ipc'] as const
const WORKER_FD = STREAMS.length
/** One page per worker: a write changes all of it or nothing. Counts of four sinks take 700 bytes. */
const SLOT_BYTES = 4096
const OWNER_ONLY = 0o600

/** Prefers memory, where a write never waits for a disk. */
const FOLDERS = ['/dev/shm', tmpdir()]

/** The file, as the supervisor uses it. */
export class WorkerCounts {
  readonly fd: number = openUnnamed()
  readonly workers: number
  readonly #slots: boolean[]

  constructor(workers: number) {
    this.workers = workers
    this.#slots = Array.from({ length: workers }, () => false)
    writeSync(this.fd, Buffer.alloc(workers * SLOT_BYTES)) // reserves the space: later writes cannot run out of it
  }

  /** For the workers. */
  get stdio(): (string | number)[] {
    return [...STREAMS, this.fd]
  }

  /** Returns the number of a new worker, from 1, which is its slot: the lowest that no living worker has. */
  take(): number {
    const slot = this.#slots.indexOf(false)
    this.#slots[slot] = true
    return slot + 1
  }

  /** Returns the counts of an exited worker, and frees its slot. Undefined if it recorded no events. */
  end(worker: number): EventCounts | undefined {
    const slot = worker - 1
    const bytes = Buffer.alloc(SLOT_BYTES)
    readSync(this.fd, bytes, 0, SLOT_BYTES, slot * SLOT_BYTES)
    writeSync(this.fd, Buffer.alloc(SLOT_BYTES), 0, SLOT_BYTES, slot * SLOT_BYTES)
    this.#slots[slot] = false
    const end = bytes.indexOf('\n')
    return end < 0 ? undefined : countsAfterExit(JSON.parse(bytes.toString('utf8', 0, end)) as PipelineTotals)
  }
}

/** Everything that no sink settled is lost. Errs high: a sink may have stored events without the worker knowing. */
function countsAfterExit({ decided, operations, sampledOut, sinks }: PipelineTotals): EventCounts {
  const recorded = decided + operations - sampledOut
  return {
    decided,
    operations,
    sampledOut,
    sinks: sinks.map(({ counted, ...sink }) => ({
      ...sink,
      pending: 0,
      lost: recorded - sink.stored - sink.dropped,
      uncounted: decided - counted,
    })),
  }
}

/** The file, as a worker uses it. */
export function countsFile(worker: number, fd: number = WORKER_FD): CountsFile {
  return {
    write: (counts) => {
      writeSync(fd, `${JSON.stringify(counts)}\n`, (worker - 1) * SLOT_BYTES)
    },
  }
}

function openUnnamed(): number {
  for (const folder of FOLDERS) {
    const path = join(folder, `sluice-${randomUUID()}`)
    try {
      const fd = openSync(path, 'wx+', OWNER_ONLY)
      unlinkSync(path)
      return fd
    } catch {} // the next folder
  }
  throw new Error(`--workers: ${FOLDERS.join(' and ')} are not writable: set TMPDIR to a folder for temporary files`)
}
