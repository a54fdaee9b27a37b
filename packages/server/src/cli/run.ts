// Arguments → the command they mean → its exit code. No command, or only flags, means `serve`.

import { nearest } from 'sluice'
import { VERSION } from '../package-facts.ts'
import { type Command, CommandError, EXIT } from './command.ts'
import { COMMANDS, commandNamed } from './commands.ts'
import { commandHelp, groupHelp, programHelp } from './help.ts'
import type { Terminal } from './terminal.ts'

export async function runCommand(args: readonly string[], terminal: Terminal): Promise<number> {
  const named = args[0] !== undefined && !args[0].startsWith('-')
  const command = named ? findCommand(args) : commandNamed('serve')
  const rest = named ? args.slice(command?.name.split(' ').length) : args
  if (asks(args, '--help', '-h')) return print(terminal, helpFor(args[0], named ? command : undefined))
  if (asks(rest, '--version')) return print(terminal, `${VERSION}\n`)
  if (command === undefined) {
    terminal.tell(unknownCommand(args))
    return EXIT.wrong
  }
  try {
    return await command.run(rest, terminal)
  } catch (error) {
    if (!(error instanceof CommandError)) throw error
    terminal.tell(`sluice ${command.name}: ${error.message}\n`)
    return error.exitCode
  }
}

function findCommand([first = '', second = '']: readonly string[]): Command | undefined {
  return commandNamed(`${first} ${second}`) ?? commandNamed(first)
}

/** Whatever else is wrong, and unless it stands behind `--`. */
function asks(args: readonly string[], ...flags: readonly string[]): boolean {
  const end = args.indexOf('--')
  return args.slice(0, end < 0 ? undefined : end).some((arg) => flags.includes(arg))
}

function helpFor(first: string | undefined, command: Command | undefined): string {
  if (command !== undefined) return commandHelp(command)
  const group = COMMANDS.filter(({ name }) => name.startsWith(`${first} `))
  return group.length > 0 ? groupHelp(first ?? '', group) : programHelp(COMMANDS)
}

function print(terminal: Terminal, text: string): number {
  terminal.out(text)
  return EXIT.done
}

function unknownCommand([first = '', second]: readonly string[]): string {
  const firstWords = [...new Set(COMMANDS.map(({ name }) => name.split(' ')[0] ?? ''))]
  const ofGroup = COMMANDS.map(({ name }) => name.split(' ')).filter(
    (words) => words.length === 2 && words[0] === first,
  )
  const secondWords = ofGroup.map((words) => words[1] ?? '')
  if (secondWords.length === 0) return unknown(first, firstWords, '')
  if (second === undefined || second.startsWith('-')) return `sluice ${first}: say what: ${secondWords.join(', ')}\n`
  return unknown(second, secondWords, `${first} `)
}

function unknown(name: string, known: readonly string[], before: string): string {
  const meant = nearest(name, known)
  const hint = meant === undefined ? `one of ${known.join(', ')}` : `did you mean "sluice ${before}${meant}"?`
  return `sluice: there is no command "${before}${name}"; ${hint}\n`
}
