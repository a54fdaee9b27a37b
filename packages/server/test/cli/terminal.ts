// Runs a command in this process: returns stdout, stderr and exit code. The test answers its questions.

import { Readable } from 'node:stream'
import { runCommand } from '../../src/cli/run.ts'
import type { Terminal } from '../../src/process/terminal.ts'

export type Ended = { readonly code: number; readonly out: string; readonly told: string }

type Options = {
  readonly env?: Record<string, string>
  readonly colors?: boolean
  /** Answer of the user, perhaps after a while. Without it there is no terminal. */
  readonly answer?: boolean | (() => Promise<boolean>)
  /** Contents of standard input. */
  readonly input?: string
  /** Called for each text on stderr, while the command runs. */
  readonly onTell?: (text: string) => void
}

export async function sluice(
  args: readonly string[],
  { env = {}, colors = false, answer, input = '', onTell }: Options = {},
): Promise<Ended> {
  let out = ''
  let told = ''
  const tell = (text: string) => {
    told += text
    onTell?.(text)
  }
  const terminal: Terminal = {
    env,
    colors,
    out: (text) => {
      out += text
    },
    tell,
    input: async () => Buffer.from(input),
    stdin: Readable.from([Buffer.from(input)]),
    status: undefined,
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
