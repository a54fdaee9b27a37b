// Reads a rule set of any length without holding up the process: ten thousand rules of YAML take a second, so a long
// text is read in a thread of its own.

import { existsSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { type Fault, inSlices } from 'sluice'
import { Turns } from '../turns.ts'
import { joined, type Pieces } from './pieces.ts'
import { readJson, readYaml, type SourceText } from './source-text.ts'

export type RuleText = Pick<SourceText, 'value' | 'faults'> & {
  /** Lines of fields such as `rules[3].limit`. */
  linesOf(fields: readonly string[]): Promise<(number | undefined)[]>
}

export type RuleTextFormat = 'yaml' | 'json'

/** What the thread is asked: the value of a text, or lines in it. */
export type ThreadQuestion = {
  readonly text: string
  readonly format: RuleTextFormat
  readonly fields?: readonly string[]
}

type ThreadAnswer = {
  readonly value?: unknown
  readonly faults: readonly Fault[]
  readonly lines: readonly (number | undefined)[]
}

/** What the thread says: the value in pieces. */
export type ThreadReply = Pieces & Omit<ThreadAnswer, 'value'>

const THREAD = new URL('./long-text-thread.js', import.meta.url)
const SHORT_LENGTH_MAX = 100_000
/** The worst text takes a gigabyte: ten of them must not take ten. */
const turns = new Turns()

export async function readRuleText(text: string, format: RuleTextFormat): Promise<RuleText> {
  const { value, faults } = await answer({ text, format })
  const linesOf = async (fields: readonly string[]) => [...(await answer({ text, format, fields })).lines]
  return { value, faults, linesOf }
}

/** JSON is read fast whatever its length, and a thread exists in the compiled program only. */
function answer(question: ThreadQuestion): ThreadAnswer | Promise<ThreadAnswer> {
  const isQuick = question.text.length <= SHORT_LENGTH_MAX || (question.format === 'json' && !question.fields)
  return isQuick || !existsSync(THREAD) ? answerHere(question) : turns.take(() => answerInThread(question))
}

export function answerHere({ text, format, fields = [] }: ThreadQuestion): ThreadAnswer {
  const { value, faults, lineOf } = format === 'json' ? readJson(text) : readYaml(text)
  return { value, faults, lines: fields.map(lineOf) }
}

async function answerInThread(question: ThreadQuestion): Promise<ThreadAnswer> {
  const { frame, pieces, faults, lines } = await replyTo(question)
  return { value: await inSlices(joined({ frame, pieces })), faults, lines }
}

function replyTo(question: ThreadQuestion): Promise<ThreadReply> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(THREAD, { workerData: question })
    worker.once('message', resolve)
    worker.once('error', reject)
    worker.once('exit', () => reject(new Error('the thread that reads rules ended without an answer')))
  })
}
