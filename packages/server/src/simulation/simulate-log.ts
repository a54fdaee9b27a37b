// Replays log files with a rule set, in this process: for the command `sluice rules simulate`.

import type { Rule } from 'sluice'
import { InOrder, type LogFormat, LogReader, type MalformedLine, Replay, type ReplayResult } from 'sluice/replay'
import { openLog, readLines } from './log-file.ts'

export type LogSimulation = {
  readonly logs: readonly string[]
  readonly format: LogFormat
  readonly rules: readonly Rule[]
  readonly against: readonly Rule[] | undefined
  readonly top: number
  readonly stdin: AsyncIterable<Uint8Array>
  /** Share of the bytes, or undefined if the size is unknown, and requests so far. */
  readonly onProgress: (share: number | undefined, requests: number) => void
}

/** A malformed line and its file. */
export type LogMistake = MalformedLine & { readonly file: string }

export type LogResult = ReplayResult & {
  readonly recording: {
    readonly source: 'log'
    readonly lines: number
    readonly malformed: number
    /** The first malformed lines. */
    readonly malformed_lines: readonly LogMistake[]
  }
}

const REPORTED_MAX = 20

/** Throws if a file cannot be read. Rejects sampled events: the sampled clients would have to be known in advance. */
export async function simulateLog(simulation: LogSimulation): Promise<LogResult> {
  const { rules, against, top } = simulation
  const replay = new Replay({ rules, against: against ?? 'recorded', top })
  const order = new InOrder((request) => replay.add(request))
  const inputs = simulation.logs.map((path) => openLog(path, simulation.stdin))
  const sizes = inputs.map(({ size }) => size)
  const total = sizes.every((size) => size !== undefined) ? sizes.reduce((sum, size) => sum + size, 0) : undefined
  const mistakes: LogMistake[] = []
  let [lines, malformed, before, unsampled] = [0, 0, 0, 0]
  for (const { name, chunks } of inputs) {
    const reader = new LogReader(simulation.format)
    let bytes = 0
    const onLine = (line: string | undefined) => {
      const request = line === undefined ? skipLong(reader) : reader.read(line)
      if (request === undefined) return
      if ((request.sampleRate ?? 1) < 1) unsampled += 1
      order.add(request)
    }
    await readLines(chunks, onLine, (read) => {
      bytes = read
      simulation.onProgress(total && (before + read) / total, replay.replayed)
    })
    before += bytes
    lines += reader.lines
    malformed += reader.malformed
    mistakes.push(...reader.reported.map((mistake) => ({ file: name, ...mistake })))
  }
  order.end()
  if (unsampled > 0) throw new SampledLog(unsampled)
  const malformed_lines = mistakes.slice(0, REPORTED_MAX)
  return { ...replay.result(), recording: { source: 'log', lines, malformed, malformed_lines } }
}

function skipLong(reader: LogReader): undefined {
  reader.lines += 1
  return reader.reject('too long')
}

/** The log has events of a sample. */
export class SampledLog extends Error {
  override readonly name = 'SampledLog'
  readonly events: number

  constructor(events: number) {
    super(`${events} events of the log are from a sample of the clients: record with --events-sample 1`)
    this.events = events
  }
}
