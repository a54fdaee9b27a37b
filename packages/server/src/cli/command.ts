// What a command is: a row of the table in commands.ts. Help, completion and docs/reference/cli.md are made of it.

import { type Given, readArguments } from './arguments.ts'
import type { Terminal } from './terminal.ts'

/** docs/reference/cli.md lists them. */
export const EXIT = {
  done: 0,
  failed: 1,
  wrong: 2,
  no: 3,
  denied: 4,
  conflict: 5,
} as const

export const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  done: 'done',
  failed: 'could not be done: a server does not answer, or answers with an error',
  wrong: 'the arguments, the settings or the rules are wrong',
  no: 'the answer is no: refused, broken, unhealthy',
  denied: 'the token is missing, unknown, or may not do this',
  conflict: 'not here and now: the rules have changed meanwhile, or are kept elsewhere',
}

export type Flag = {
  /** Without the dashes. */
  readonly name: string
  /** What its value is, for help: `<url>`. A flag without one is a switch. */
  readonly value?: string
  readonly help: string
  /** The variable that gives the value where the flag is absent. */
  readonly env?: string
  readonly fallback?: string
  /** How the fallback is told, if not as it stands. */
  readonly shownFallback?: string
  /** May be given several times. */
  readonly repeats?: true
  readonly choices?: readonly string[]
  /** Its value is a file: completion offers those. */
  readonly isFile?: true
  /** Which texts are right, and what to do about others. */
  readonly accepts?: (text: string) => boolean
  readonly fix?: string
  /** Never shown, not even to say that it is wrong. */
  readonly secret?: true
}

export type Positional = {
  /** `<file>` */
  readonly name: string
  readonly help: string
  readonly optional?: true
  readonly repeats?: true
  readonly choices?: readonly string[]
}

export type Example = { readonly does: string; readonly line: string }

export type Syntax = {
  /** One word, or two: `rules lint`. */
  readonly name: string
  readonly summary: string
  readonly positionals: readonly Positional[]
  readonly flags: readonly Flag[]
}

export type Command = Syntax & {
  /** What people should know beyond the summary. */
  readonly details?: string
  readonly examples: readonly Example[]
  /** Resolves with the exit code. */
  run(args: readonly string[], terminal: Terminal): Promise<number>
}

type Definition = Omit<Command, 'run'> & { run(given: Given, terminal: Terminal): Promise<number> }

/** A command whose arguments are read as its flags and positionals say. Mistakes are told all at once. */
export function defineCommand(definition: Definition): Command {
  const run = async (args: readonly string[], terminal: Terminal) => {
    const { given, faults } = readArguments(definition, args, terminal.env)
    if (faults.length === 0) return definition.run(given, withColors(terminal, given))
    terminal.tell(usageMistakes(definition.name, faults))
    return EXIT.wrong
  }
  return { ...definition, run }
}

/** A command ends with this when it cannot go on: the message for people, the code for programs. */
export class CommandError extends Error {
  override readonly name = 'CommandError'
  readonly exitCode: number

  constructor(message: string, exitCode: number = EXIT.failed) {
    super(message)
    this.exitCode = exitCode
  }
}

export const JSON_FLAG: Flag = { name: 'json', help: 'Print JSON, for programs.' }
export const OUTPUT_FLAGS: readonly Flag[] = [
  JSON_FLAG,
  { name: 'no-color', help: 'Print without colours; so does the variable NO_COLOR, and a pipe.' },
]

function withColors(terminal: Terminal, given: Given): Terminal {
  return given.has('no-color') ? { ...terminal, colors: false } : terminal
}

function usageMistakes(name: string, faults: readonly string[]): string {
  const lines = faults.map((fault) => `  ${fault}\n`)
  return `sluice ${name}: ${faults.length === 1 ? 'an argument is' : 'arguments are'} wrong\n${lines.join('')}`
}
