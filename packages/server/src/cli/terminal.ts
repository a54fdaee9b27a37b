// Where a command reads and writes: data on stdout, messages on stderr, questions to a person if there is one.

import { createInterface } from 'node:readline/promises'
import { RULE_SET_BYTES_MAX } from '../rules/rule-file.ts'

export type Environment = Readonly<Record<string, string | undefined>>

export type Terminal = {
  readonly env: Environment
  /** Whether data may be coloured: somebody looks at it, and has not asked for plain text. */
  readonly colors: boolean
  /** Data: what was asked for. */
  out(text: string): void
  /** Messages: what happened, and what to do about it. */
  tell(text: string): void
  /** Standard input to its end, or to one byte more than a rule file may have. */
  input(): Promise<Uint8Array>
  /** Undefined where nobody can answer. */
  readonly ask: ((question: string) => Promise<boolean>) | undefined
}

export function processTerminal(): Terminal {
  const { stdin, stdout, stderr, env } = process
  stdout.on('error', () => {}) // whoever read it, such as `head`, may leave
  return {
    env,
    colors: stdout.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb',
    out: (text) => void stdout.write(text),
    tell: (text) => void stderr.write(text),
    input: () => bytesOf(stdin),
    ask: stdin.isTTY && stderr.isTTY ? askPerson : undefined,
  }
}

async function bytesOf(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const chunks: Uint8Array[] = []
  let left = RULE_SET_BYTES_MAX
  for await (const chunk of stream) {
    chunks.push(chunk)
    left -= chunk.length
    if (left < 0) break
  }
  return Buffer.concat(chunks)
}

async function askPerson(question: string): Promise<boolean> {
  const lines = createInterface({ input: process.stdin, output: process.stderr })
  const answer = await lines.question(`${question} [y/N] `)
  lines.close()
  return /^y(es)?$/i.test(answer.trim())
}
