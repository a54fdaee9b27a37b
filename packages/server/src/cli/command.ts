// Definition of a command. Help, completion and docs/reference/cli.md are generated from it.

import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { type Given, readArguments } from './arguments.ts'

export type Flag = {
  /** Without the dashes. */
  readonly name: string
  /** Placeholder of the value in help: `<url>`. Undefined for a boolean flag. */
  readonly value?: string
  readonly help: string
  /** Environment variable that is used if the flag is absent. */
  readonly env?: string
  readonly fallback?: string
  /** Description of the default for help, if it differs from `fallback`. */
  readonly shownFallback?: string
  /** May be given several times. */
  readonly repeats?: true
  readonly choices?: readonly string[]
  /** The value is a file; completion offers files. */
  readonly isFile?: true
  /** Accepts valid values; `fix` is the message for others. */
  readonly accepts?: (text: string) => boolean
  readonly fix?: string
  /** The value is never printed, not even in errors. */
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
  /** Help text after the summary. */
  readonly details?: string
  readonly examples: readonly Example[]
  /** Resolves with the exit code. */
  run(args: readonly string[], terminal: Terminal): Promise<number>
}

type Definition = Omit<Command, 'run'> & {
  /** Further errors, such as flags that exclude each other. */
  mistakes?(given: Given, terminal: Terminal): readonly string[]
  run(given: Given, terminal: Terminal): Promise<number>
}

/** Creates a command that parses its arguments by its flags and positionals and reports all errors together. */
export function defineCommand(definition: Definition): Command {
  const run = async (args: readonly string[], terminal: Terminal) => {
    const { given, errors } = readArguments(definition, args, terminal.env)
    const mistakes = [...errors, ...(definition.mistakes?.(given, terminal) ?? [])]
    if (mistakes.length === 0) return definition.run(given, withColors(terminal, given))
    terminal.tell(usageErrors(definition.name, mistakes))
    return EXIT.invalid
  }
  return { ...definition, run }
}

/** Ends a command with a message and an exit code. */
export class CommandError extends Error {
  override readonly name = 'CommandError'
  readonly exitCode: number

  constructor(message: string, exitCode: number = EXIT.failed) {
    super(message)
    this.exitCode = exitCode
  }
}

export const JSON_FLAG: Flag = { name: 'json', help: 'Print JSON.' }
export const OUTPUT_FLAGS: readonly Flag[] = [
  JSON_FLAG,
  { name: 'no-color', help: 'Print without colours. Automatic if NO_COLOR is set or the output is not a terminal.' },
]

function withColors(terminal: Terminal, given: Given): Terminal {
  return given.has('no-color') ? { ...terminal, colors: false } : terminal
}

function usageErrors(name: string, errors: readonly string[]): string {
  const lines = errors.map((error) => `  ${error}\n`)
  return `sluice ${name}: invalid ${errors.length === 1 ? 'argument' : 'arguments'}\n${lines.join('')}`
}
