// Parses the text of a rule set without blocking the event loop. YAML costs up to 10 µs per character, ten thousand
// rules a second, so all but short texts are parsed in a worker thread. JSON is parsed here, in slices.

import { Worker } from 'node:worker_threads'
import { type FieldError, inSlices } from 'sluice'
import { PACKAGE_FOLDER } from '../package-facts.ts'
import { SerialQueue } from '../serial-queue.ts'
import { JsonMalformed, JsonTooComplex, parsingJson } from '../text/long-json.ts'
import { TokenPlaces } from '../token-places.ts'
import { jsonError, readJson, readYaml, type SourceText } from './source-text.ts'

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

/** The reply of the thread. A value is JSON, which this thread can parse in slices, unlike a structured clone. */
export type ThreadReply = Omit<ParsedText, 'value'> & { readonly json: string | undefined }

const THREAD = new URL('dist/rules/rule-text-thread.js', PACKAGE_FOLDER)
/** False in tests, which run the sources. */
const IS_COMPILED = import.meta.url.endsWith('.js')
/** YAML up to this length takes at most about 20 ms: most single rules. */
const INLINE_LENGTH_MAX = 2000
/** Cap on the memory of the thread: 8 MiB of rules need a gigabyte, as many mistakes more. */
const HEAP_MB_MAX = 1536
const WAITING_MAX = 20
const WAITING_PER_TOKEN_MAX = 5
/** Texts of requests that are parsed or wait. Those of the node itself, such as its rule file, always get in. */
const places = new TokenPlaces({
  ...{ max: WAITING_MAX, perTokenMax: WAITING_PER_TOKEN_MAX },
  ...{ code: 'TOO_MANY_TEXTS', work: 'YAML texts waiting', fix: 'wait for one of them' },
})
/** Parses one text at a time, because the worst case takes a gigabyte of memory. */
const queue = new SerialQueue()

/**
 * `token`: id of the caller's token; undefined for a text of the node. Throws ProblemError if too many texts wait.
 */
export async function readRuleText(text: string, format: RuleTextFormat, token?: string): Promise<RuleText> {
  const { value, errors } = format === 'json' ? await parseJson(text) : await parseText({ text, format }, token)
  const linesOf = async (fields: readonly string[]) => [...(await parseText({ text, format, fields }, token)).lines]
  return { value, errors, linesOf }
}

async function parseJson(text: string): Promise<ParsedText> {
  try {
    return { value: await inSlices(parsingJson(text)), errors: [], lines: [] }
  } catch (error) {
    if (error instanceof JsonMalformed) return { errors: [jsonError(text, error.at)], lines: [] }
    if (!(error instanceof JsonTooComplex)) throw error
    return { errors: [{ field: error.field, value: error.value, fix: error.message }], lines: [] }
  }
}

/** The thread is compiled code. */
function parseText(request: ThreadRequest, token: string | undefined): ParsedText | Promise<ParsedText> {
  return request.text.length <= INLINE_LENGTH_MAX || !IS_COMPILED ? parseInline(request) : parseQueued(request, token)
}

export function parseInline({ text, format, fields = [] }: ThreadRequest): ParsedText {
  const { value, errors, lineOf } = format === 'json' ? readJson(text) : readYaml(text)
  return { value, errors, lines: fields.map(lineOf) }
}

async function parseQueued(request: ThreadRequest, token: string | undefined): Promise<ParsedText> {
  const free = token === undefined ? undefined : places.take(token)
  try {
    const { json, errors, lines } = await queue.run(() => replyOf(request))
    return json === undefined ? { errors, lines } : { ...(await parseJson(json)), lines }
  } finally {
    free?.()
  }
}

function replyOf(request: ThreadRequest): Promise<ThreadReply> {
  return new Promise((resolve, reject) => {
    const resourceLimits = { maxOldGenerationSizeMb: HEAP_MB_MAX }
    const worker = new Worker(THREAD, { workerData: request, execArgv: [], resourceLimits })
    worker.once('message', resolve)
    worker.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ERR_WORKER_OUT_OF_MEMORY') return reject(error)
      const fix = `make it simpler: it takes more than ${HEAP_MB_MAX} MB to parse`
      resolve({ errors: [{ field: 'file', value: undefined, fix }], lines: [], json: undefined })
    })
    worker.once('exit', () => reject(new Error('the thread that parses rules exited without a reply')))
  })
}
