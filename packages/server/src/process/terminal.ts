// Input and output of a command: data on stdout, messages on stderr, questions if the terminal is interactive.

import { createInterface } from 'node:readline/promises'
import { RULE_SET_BYTES_MAX } from '../rules/rule-file.ts'
import { safeOutput } from '../text/escaped.ts'

export type Environment = Readonly<Record<string, string | undefined>>

export type Terminal = {
  readonly env: Environment
  /** Whether to colour data: stdout is a terminal and colours are not disabled. */
  readonly colors: boolean
  /** Data, to stdout. */
  out(text: string): void
  /** Messages, to stderr. */
  tell(text: string): void
  /** Standard input to its end, or to one byte more than the maximum of a rule file. */
  input(): Promise<Uint8Array>
  /** Standard input as a stream, for long inputs. */
  readonly stdin: AsyncIterable<Uint8Array>
  /** Replaces the last status line on stderr; an empty text removes it. Undefined if stderr is not a terminal. */
  readonly status: ((text: string) => void) | undefined
  /** Undefined without an interactive terminal. */
  readonly ask: ((question: string) => Promise<boolean>) | undefined
}

export function processTerminal(): Terminal {
  const { stdin, stdout, stderr, env } = process
  stdout.on('error', () => {}) // the reader, such as `head`, may exit early
  return {
    env,
    colors: stdout.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb',
    out: (text) => void stdout.write(text),
    tell: (text) => void stderr.write(text),
    input: () => bytesOf(stdin),
    stdin,
    status: stderr.isTTY ? (text) => void stderr.write(`\r\x1b[K${text}`) : undefined,
    ask: stdin.isTTY && stderr.isTTY ? askPerson : undefined,
  }
}

/** Escapes whatever a client, a rule or a server could have put into the output: see safeOutput. */
export function safeTerminal(terminal: Terminal): Terminal {
  const { colors, out, tell, status, ask } = terminal
  return {
    ...terminal,
    out: (text) => out(safeOutput(text, colors)),
    tell: (text) => tell(safeOutput(text, colors)),
    status: status && ((text) => status(safeOutput(text, colors))),
    ask: ask && ((question) => ask(safeOutput(question, colors))),
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
