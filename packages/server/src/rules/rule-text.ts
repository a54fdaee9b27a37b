// Parses the text of a rule set without blocking the event loop: ten thousand rules of YAML take a second, so long
// texts are parsed in a worker thread.

import { Worker } from 'node:worker_threads'
import { type FieldError, inSlices } from 'sluice'
import { PACKAGE_FOLDER } from '../package-facts.ts'
import { SerialQueue } from '../serial-queue.ts'
import { fromChunks, type JsonChunks } from './json-chunks.ts'
import { readJson, readYaml, type SourceText } from './source-text.ts'

export type RuleText = Pick<SourceText, 'value' | 'errors'> & {
  /** Lines of fields such as `rules[3].limit`. */
  linesOf(fields: readonly string[]): Promise<(number | undefined)[]>
}

export type RuleTextFormat = 'yaml' | 'json'

/** Requests the value of a text or, with `fields`, the lines of these fields. */
export type ThreadRequest = {
  readonly text: string
  readonly format: RuleTextFormat
  readonly fields?: readonly string[]
}

type ParsedText = {
  readonly value?: unknown
  readonly errors: readonly FieldError[]
  readonly lines: readonly (number | undefined)[]
}

/** The reply of the thread, with the value in chunks. */
export type ThreadReply = JsonChunks & Omit<ParsedText, 'value'>

const THREAD = new URL('dist/rules/rule-text-thread.js', PACKAGE_FOLDER)
/** False in tests, which run the sources. */
const IS_COMPILED = import.meta.url.endsWith('.js')
const INLINE_LENGTH_MAX = 100_000
/** Parses one text at a time, because the worst case takes a gigabyte of memory. */
const queue = new SerialQueue()

export async function readRuleText(text: string, format: RuleTextFormat): Promise<RuleText> {
  const { value, errors } = await parseText({ text, format })
  const linesOf = async (fields: readonly string[]) => [...(await parseText({ text, format, fields })).lines]
  return { value, errors, linesOf }
}

/** JSON is fast at any length. The thread is compiled code. */
function parseText(request: ThreadRequest): ParsedText | Promise<ParsedText> {
  const isQuick = request.text.length <= INLINE_LENGTH_MAX || (request.format === 'json' && !request.fields)
  return isQuick || !IS_COMPILED ? parseInline(request) : queue.run(() => parseInThread(request))
}

export function parseInline({ text, format, fields = [] }: ThreadRequest): ParsedText {
  const { value, errors, lineOf } = format === 'json' ? readJson(text) : readYaml(text)
  return { value, errors, lines: fields.map(lineOf) }
}

async function parseInThread(request: ThreadRequest): Promise<ParsedText> {
  const { envelope, chunks, errors, lines } = await replyTo(request)
  return { value: await inSlices(fromChunks({ envelope, chunks })), errors, lines }
}

function replyTo(request: ThreadRequest): Promise<ThreadReply> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(THREAD, { workerData: request })
    worker.once('message', resolve)
    worker.once('error', reject)
    worker.once('exit', () => reject(new Error('the thread that parses rules exited without a reply')))
  })
}
