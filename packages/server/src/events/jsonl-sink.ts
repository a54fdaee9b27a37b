// Writes events as JSON lines with ECS field names, to a file that it rotates by size, or to stdout. Writes no
// rollups. Within a process a batch is written once: after a failed write the file is truncated to its old size. A
// crash during a write can leave a partial batch, which the next process cannot detect. To drop duplicates downstream,
// use the event id as document id. Lines are not flushed to disk: they survive a killed process, not a power cut.

import { write as writeFd } from 'node:fs'
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname, extname } from 'node:path'
import { promisify } from 'node:util'
import { inSlices, mapped } from 'sluice'
import { workerNumber } from '../worker-number.ts'
import { ecsLine } from './ecs.ts'
import type { Batch } from './event.ts'
import type { BatchId, Sink } from './sink.ts'

export type JsonlOptions = {
  /** A file, or `-` for stdout. */
  readonly path: string
  /** Size from which a file is rotated. A file can be one batch larger. */
  readonly maxBytes: number
  /** Rotated files to keep: `<path>.1` is the newest. 0: the file is emptied. */
  readonly files: number
}

const STDOUT = 1
/** Owner and group can read it: log shippers often have a user of their own. */
const FILE_MODE = 0o640
/** Writes to a pipe of up to this size are atomic: lines of several workers do not mix. */
const PIPE_BYTES = 4096
const PIPE_FULL_RETRY_MS = 10
const NEWLINE = 0x0a

/** Opens the file, so that a wrong path is reported at start. */
export async function openJsonlSink(options: JsonlOptions): Promise<Sink> {
  if (options.path === '-') return new StdoutSink()
  const path = pathOfWorker(options.path, workerNumber())
  const sink = new FileSink({ ...options, path })
  try {
    await sink.open()
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    const fix = code === 'ENOENT' ? `create the folder ${dirname(path)}` : 'give a file that this process can write'
    throw new Error(`jsonl: ${path} cannot be opened (${code}): ${fix}`)
  }
  return sink
}

/** `decisions.jsonl` → `decisions-2.jsonl` for worker 2: each process has its own file. */
export function pathOfWorker(path: string, worker: number): string {
  if (worker === 0) return path
  const extension = extname(path)
  return `${path.slice(0, path.length - extension.length)}-${worker}${extension}`
}

class FileSink implements Sink {
  readonly name = 'jsonl'
  readonly #options: JsonlOptions
  readonly #host = hostname()
  #file: FileHandle | undefined
  /** Size without the part of a batch that a failed write left behind. */
  #size = 0
  #isTorn = false

  constructor(options: JsonlOptions) {
    this.#options = options
  }

  async write(_id: BatchId, { events }: Batch): Promise<number> {
    if (events.length === 0) return 0
    const bytes = Buffer.concat(await ecsLines(events, this.#host))
    if (!(await this.#isCurrent())) await this.open()
    if (this.#size > 0 && this.#size + bytes.length > this.#options.maxBytes) await this.#rotate()
    await this.#append(bytes)
    return 0
  }

  async close(): Promise<void> {
    const file = this.#file
    this.#file = undefined
    await file?.close()
  }

  /** Ends a line that a crashed process left unfinished. */
  async open(): Promise<void> {
    await this.close()
    const file = await open(this.#options.path, 'a+', FILE_MODE)
    this.#file = file
    this.#size = (await file.stat()).size
    this.#isTorn = false
    if (this.#size === 0) return
    const { buffer } = await file.read(Buffer.alloc(1), 0, 1, this.#size - 1)
    if (buffer[0] !== NEWLINE) await this.#append(Buffer.of(NEWLINE))
  }

  /** False if another program has moved or removed the file. Adopts the size if another program has emptied it. */
  async #isCurrent(): Promise<boolean> {
    const file = this.#file
    if (file === undefined) return false
    const [found, own] = await Promise.all([stat(this.#options.path).catch(() => undefined), file.stat()])
    if (found === undefined || found.ino !== own.ino || found.dev !== own.dev) return false
    if (this.#isTorn) {
      await file.truncate(this.#size)
      this.#isTorn = false
    } else this.#size = own.size
    return true
  }

  async #append(bytes: Buffer): Promise<void> {
    const file = this.#file
    if (file === undefined) throw new Error('the jsonl sink is closed')
    this.#isTorn = true
    try {
      await file.appendFile(bytes)
      this.#size += bytes.length
    } catch (error) {
      await file.truncate(this.#size).catch(() => {}) // #isTorn: done before the next write
      throw error
    }
    this.#isTorn = false
  }

  async #rotate(): Promise<void> {
    const { path, files } = this.#options
    await this.close()
    if (files === 0) await rm(path, { force: true })
    for (let number = files; number > 0; number--) {
      const from = number === 1 ? path : `${path}.${number - 1}`
      await rename(from, `${path}.${number}`).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error
      })
    }
    await this.open()
  }
}

/** Does not use process.stdout, which blocks the process while the reader of a pipe is slow. */
class StdoutSink implements Sink {
  readonly name = 'jsonl'
  readonly #host = hostname()
  readonly #writeBytesMax = workerNumber() === 0 ? Number.POSITIVE_INFINITY : PIPE_BYTES
  /** Batch that is being written, and its bytes that were written. */
  #pending: { readonly id: BatchId; written: number } | undefined
  #isClosed = false

  async write(id: BatchId, { events }: Batch): Promise<number> {
    const lines = await ecsLines(events, this.#host)
    const last = this.#pending
    const isSame = last !== undefined && last.id.seq === id.seq && last.id.producer === id.producer
    const pending = isSame ? last : { id, written: 0 }
    this.#pending = pending
    let start = 0
    for (const bytes of grouped(lines, this.#writeBytesMax)) {
      const end = start + bytes.length
      while (pending.written < end) pending.written += await this.#writeSome(bytes.subarray(pending.written - start))
      start = end
    }
    return 0
  }

  close(): Promise<void> {
    this.#isClosed = true
    return Promise.resolve()
  }

  /** Resolves with the number of bytes written. */
  async #writeSome(bytes: Buffer): Promise<number> {
    if (this.#isClosed) throw new Error('the jsonl sink is closed')
    try {
      return (await promisify(writeFd)(STDOUT, bytes)).bytesWritten
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error
      await new Promise((resolve) => setTimeout(resolve, PIPE_FULL_RETRY_MS).unref())
      return 0
    }
  }
}

/** In slices: 10,000 events take longer than a check may wait. */
function ecsLines(events: Batch['events'], host: string): Promise<Buffer[]> {
  return inSlices(mapped(events, (event) => Buffer.from(ecsLine(event, host))))
}

/** Joins whole lines to buffers of at most `bytesMax`; a longer line is a buffer of its own. */
function* grouped(lines: readonly Buffer[], bytesMax: number): Generator<Buffer> {
  let group: Buffer[] = []
  let bytes = 0
  for (const line of lines) {
    if (group.length > 0 && bytes + line.length > bytesMax) {
      yield Buffer.concat(group)
      group = []
      bytes = 0
    }
    group.push(line)
    bytes += line.length
  }
  if (group.length > 0) yield Buffer.concat(group)
}
