// Dispatches the arguments to a command. Without a command name, runs `serve`.

import { nearest } from 'sluice'
import { VERSION } from '../package-facts.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { type Command, CommandError } from './command.ts'
import { COMMANDS, commandNamed } from './commands.ts'
import { commandHelp, groupHelp, programHelp } from './help.ts'
import { requests } from './requests.ts'

export async function dispatch(args: readonly string[], terminal: Terminal): Promise<number> {
  const named = args[0] !== undefined && !args[0].startsWith('-')
  const command = named ? findCommand(args) : commandNamed('serve')
  const rest = named ? args.slice(command?.name.split(' ').length) : args
  if (requests(args, '--help', '-h')) return print(terminal, helpFor(args[0], named ? command : undefined))
  if (requests(rest, '--version')) return print(terminal, `${VERSION}\n`)
  if (command === undefined) {
    terminal.tell(unknownCommand(args))
    return EXIT.invalid
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
  if (second === undefined || second.startsWith('-'))
    return `sluice ${first}: missing command; use one of ${secondWords.join(', ')}\n`
  return unknown(second, secondWords, `${first} `)
}

function unknown(name: string, known: readonly string[], before: string): string {
  const meant = nearest(name, known)
  const hint = meant === undefined ? `use one of ${known.join(', ')}` : `did you mean "sluice ${before}${meant}"?`
  return `sluice: unknown command "${before}${name}"; ${hint}\n`
}
