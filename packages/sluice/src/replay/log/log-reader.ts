// Reads log lines into recorded requests. A malformed line is counted and reported with its number; it never throws.

import type { RecordedRequest } from '../recorded-request.ts'
import { readClfLine } from './clf.ts'
import { readJsonLine } from './json-line.ts'

export const LOG_FORMATS = ['auto', 'common', 'combined', 'json'] as const
/** `auto`: JSON if a line begins with a brace, else Common or Combined Log Format. `json` includes events of Sluice. */
export type LogFormat = (typeof LOG_FORMATS)[number]

export type MalformedLine = { readonly line: number; readonly reason: string }

/** Undefined: the line is blank or malformed. */
export type LineResult = RecordedRequest | undefined

const LINE_LENGTH_MAX = 65_536
/** Malformed lines to report, of all that are counted. */
const REPORTED_MAX = 20

export class LogReader {
  readonly #format: LogFormat
  /** Lines so far. */
  lines = 0
  /** Malformed lines so far. */
  malformed = 0
  /** The first malformed lines. */
  readonly reported: MalformedLine[] = []

  constructor(format: LogFormat = 'auto') {
    this.#format = format
  }

  /** Reads the next line, without its line break. */
  read(line: string): LineResult {
    this.lines += 1
    if (line.length > LINE_LENGTH_MAX) return this.reject(`longer than ${LINE_LENGTH_MAX} characters`)
    const text = line.endsWith('\r') ? line.slice(0, -1) : line
    if (text.trim() === '') return undefined
    const read = this.#parse(text)
    return typeof read === 'string' ? this.reject(read) : read
  }

  /** Counts the current line as malformed. */
  reject(reason: string): undefined {
    this.malformed += 1
    if (this.reported.length < REPORTED_MAX) this.reported.push({ line: this.lines, reason })
  }

  #parse(text: string): RecordedRequest | string {
    const format = this.#format === 'auto' ? (text.trimStart().startsWith('{') ? 'json' : undefined) : this.#format
    if (format === 'json') return readJsonLine(text)
    return readClfLine(text, format === undefined ? undefined : format === 'combined')
  }
}
