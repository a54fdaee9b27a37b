// Reads a log file of the user with the parser of the library, in the worker: the file never leaves the browser. Size
// and number of requests are bounded, because all requests stay in memory while the user drags.

import { InOrder, LogReader, type RecordedRequest } from 'sluice/replay'
import type { LogSummary } from './protocol.ts'

const REQUESTS_MAX = 200_000
/** Cap on the file, and on its text if it is compressed. */
const BYTES_MAX = 100_000_000
/** More than the longest line that the reader accepts. */
const LINE_LENGTH_MAX = 262_144
const GZIP = /\.gz$/i

export type ReadLog = { readonly requests: readonly RecordedRequest[]; readonly summary: LogSummary }

/** Rejects with a sentence for people. `onProgress` gets the share of the file that was read, if it is known. */
export async function readLog(file: File, onProgress: (share: number) => void): Promise<ReadLog> {
  const { name, size } = file
  if (size > BYTES_MAX) throw tooLarge(name, `has ${Math.ceil(size / 1e6)} MB, and at most ${BYTES_MAX / 1e6} MB`)
  const requests: RecordedRequest[] = []
  const order = new InOrder((request) => requests.push(request))
  const reader = new LogReader()
  let [count, sampled, refused] = [0, 0, 0]
  const onLine = (line: string) => {
    const request = reader.read(line)
    if (request === undefined) return
    count += 1
    if (count > REQUESTS_MAX) throw tooLarge(name, `has more requests than the ${count - 1} that`)
    if ((request.sampleRate ?? 1) < 1) sampled += 1
    if (request.kind === 'check' && request.allowed === false) refused += 1
    order.add(request)
  }
  await readLines(file, onLine, (read) => onProgress(GZIP.test(name) ? 0 : read / size))
  order.end()
  const { lines, malformed, reported } = reader
  if (sampled > 0) {
    throw new Error(`${sampled} events of ${name} are from a sample of the clients: record with --events-sample 1.`)
  }
  if (count === 0) throw new Error(nothingIn(name, reader))
  return { requests, summary: { name, requests: count, lines, refused, malformed, reported } }
}

async function readLines(file: File, onLine: (line: string) => void, onRead: (length: number) => void): Promise<void> {
  let rest = ''
  let length = 0
  for await (const chunk of chunksOf(file)) {
    length += chunk.length
    if (length > BYTES_MAX) throw tooLarge(file.name, `unpacks to more than ${BYTES_MAX / 1e6} MB, the most that`)
    const lines = (rest + chunk).split('\n')
    rest = lines.pop() ?? ''
    // The reader rejects the line; its end counts as another malformed one.
    if (rest.length > LINE_LENGTH_MAX) {
      lines.push(rest)
      rest = ''
    }
    for (const line of lines) onLine(line)
    onRead(length)
  }
  if (rest !== '') onLine(rest)
}

async function* chunksOf(file: File): AsyncGenerator<string> {
  const bytes = file.stream() as ReadableStream<BufferSource>
  const unpacked = GZIP.test(file.name) ? bytes.pipeThrough(new DecompressionStream('gzip')) : bytes
  const reader = unpacked.pipeThrough(new TextDecoderStream()).getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error: Error) => {
        throw new Error(`${file.name} cannot be read: ${error.message}`)
      })
      if (done) return
      yield value
    }
  } finally {
    await reader.cancel().catch(() => {}) // frees a file that is left early
  }
}

function tooLarge(name: string, why: string): Error {
  const command = `sluice rules simulate --log ${name} --rules new.yaml`
  return new Error(`${name} ${why} can be replayed on this page. Open a part of it, or run: ${command}`)
}

function nothingIn(name: string, { malformed, reported: [first] }: LogReader): string {
  if (first === undefined) return `${name} has no lines with requests.`
  return `None of the ${malformed} lines of ${name} can be read. Line ${first.line}: ${first.reason}.`
}
