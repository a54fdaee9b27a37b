// A command in this process: what it prints, what it tells and how it ends. The person at the terminal is a test.

import { runCommand } from '../../src/cli/run.ts'
import type { Terminal } from '../../src/cli/terminal.ts'

export type Ended = { readonly code: number; readonly out: string; readonly told: string }

type Options = {
  readonly env?: Record<string, string>
  readonly colors?: boolean
  /** What a person answers, perhaps after a while; nobody is there without it. */
  readonly answer?: boolean | (() => Promise<boolean>)
  /** What standard input holds. */
  readonly input?: string
}

export async function sluice(
  args: readonly string[],
  { env = {}, colors = false, answer, input = '' }: Options = {},
): Promise<Ended> {
  let out = ''
  let told = ''
  const tell = (text: string) => {
    told += text
  }
  const terminal: Terminal = {
    env,
    colors,
    out: (text) => {
      out += text
    },
    tell,
    input: async () => Buffer.from(input),
    ask:
      answer === undefined
        ? undefined
        : async (question) => {
            tell(`${question}\n`)
            return typeof answer === 'function' ? answer() : answer
          },
  }
  const code = await runCommand(args, terminal)
  return { code, out, told }
}
