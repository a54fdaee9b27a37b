// Reads log files line by line, from disk (also compressed with gzip) or standard input. Memory is bounded: lines that
// are too long are skipped and count as malformed.

import { createReadStream, statSync } from 'node:fs'
import { Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'

/** More than the longest line that a reader accepts. */
const LINE_BYTES_MAX = 262_144
const CHUNK_BYTES = 262_144
const NEWLINE = 0x0a

export type LogInput = {
  readonly name: string
  /** Size in bytes; undefined if it is unknown or compressed. */
  readonly size: number | undefined
  readonly chunks: AsyncIterable<Uint8Array>
}

/** Throws if the file cannot be read. */
export function openLog(path: string, stdin: AsyncIterable<Uint8Array>): LogInput {
  if (path === '-') return { name: 'stdin', size: undefined, chunks: stdin }
  const found = statSync(path)
  if (found.isDirectory()) throw new Error('it is a folder')
  const file = createReadStream(path, { highWaterMark: CHUNK_BYTES })
  if (!path.endsWith('.gz')) return { name: path, size: found.isFile() ? found.size : undefined, chunks: file }
  const unzipped = createGunzip()
  file.once('error', (error) => unzipped.destroy(error))
  return { name: path, size: undefined, chunks: Readable.from(file.pipe(unzipped)) }
}

/**
 * Calls `onLine` with each line, without its line break; undefined: the line is too long. `onChunk` follows each chunk
 * with the number of bytes so far.
 */
export async function readLines(
  chunks: AsyncIterable<Uint8Array>,
  onLine: (line: string | undefined) => void,
  onChunk: (bytes: number) => void,
): Promise<void> {
  let rest: Uint8Array = new Uint8Array()
  let isTooLong = false
  let bytes = 0
  for await (const chunk of chunks) {
    const buffer = Buffer.concat([rest, chunk])
    let start = 0
    for (let end = buffer.indexOf(NEWLINE); end >= 0; end = buffer.indexOf(NEWLINE, start)) {
      onLine(isTooLong ? undefined : buffer.toString('utf8', start, end))
      isTooLong = false
      start = end + 1
    }
    rest = buffer.subarray(start)
    if (rest.length > LINE_BYTES_MAX) {
      rest = new Uint8Array()
      isTooLong = true
    }
    bytes += chunk.length
    onChunk(bytes)
  }
  if (isTooLong) onLine(undefined)
  else if (rest.length > 0) onLine(Buffer.from(rest).toString('utf8'))
}
