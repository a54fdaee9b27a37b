// Where a command reads and writes: data on stdout, messages on stderr, questions to a person if there is one.

import { createInterface } from 'node:readline/promises'

export type Environment = Readonly<Record<string, string | undefined>>

export type Terminal = {
  readonly env: Environment
  /** Whether data may be coloured: somebody looks at it, and has not asked for plain text. */
  readonly colors: boolean
  /** Data: what was asked for. */
  out(text: string): void
  /** Messages: what happened, and what to do about it. */
  tell(text: string): void
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
    ask: stdin.isTTY && stderr.isTTY ? askPerson : undefined,
  }
}

async function askPerson(question: string): Promise<boolean> {
  const lines = createInterface({ input: process.stdin, output: process.stderr })
  const answer = await lines.question(`${question} [y/N] `)
  lines.close()
  return /^y(es)?$/i.test(answer.trim())
}
