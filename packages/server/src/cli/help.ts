// Formats help of the program, a group and a command, and errors in settings.

import type { FieldError } from 'sluice'
import { VERSION } from '../package-facts.ts'
import { EXIT, EXIT_MEANINGS } from '../process/exit-codes.ts'
import type { Command, Flag, Positional, Syntax } from './command.ts'

const WIDTH = 100
const INDENT = '      '

export function programHelp(commands: readonly Command[]): string {
  const serve = commands.find(({ name }) => name === 'serve')
  return [
    `sluice ${VERSION}: a distributed rate limiter behind one HTTP API`,
    '',
    'Usage: sluice <command> [--flag value …]        sluice <command> --help for details',
    '       sluice [--flag value …]                  the same as sluice serve',
    '',
    ...commandLines(commands),
    '',
    'Settings of the service. Each flag has an environment variable; the flag takes precedence:',
    '',
    ...(serve?.flags ?? []).flatMap(flagLines),
    ...helpFlagLines(),
    '  --version\n      Prints the version.',
    '',
    ...exitCodeLines(),
    '',
  ].join('\n')
}

export function groupHelp(name: string, commands: readonly Command[]): string {
  return [`Usage: sluice ${name} <command> [--flag value …]`, '', ...commandLines(commands), ''].join('\n')
}

export function commandHelp(command: Command): string {
  const { summary, details, positionals, flags, examples } = command
  return [
    ...wrapped(`Usage: ${usageOf(command)}`, ''),
    '',
    ...wrapped(details === undefined ? summary : `${summary} ${details}`, ''),
    '',
    ...positionals.flatMap(({ name, help }) => [`  ${name}`, ...wrapped(help)]),
    ...flags.flatMap(flagLines),
    ...helpFlagLines(),
    '',
    'Examples:',
    ...examples.flatMap(({ does, line }) => [`  # ${does}`, `  ${line}`]),
    '',
  ].join('\n')
}

/** `sluice rules lint <file>… [--json] [--no-color]` */
export function usageOf({ name, positionals, flags }: Syntax): string {
  const shown = flags.length > 8 ? ['[--flag value …]'] : flags.map((flag) => `[${flagName(flag)}]`)
  return ['sluice', name, ...positionals.map(positionalName), ...shown].join(' ')
}

export function flagName({ name, value }: Flag): string {
  return value === undefined ? `--${name}` : `--${name} ${value}`
}

/** Help of a flag with its default. */
export function flagHelp({ help, choices, fallback, shownFallback = fallback }: Flag): string {
  const chosen = choices === undefined ? help : `${help} One of ${choices.join(', ')}.`
  return shownFallback === undefined ? chosen : `${chosen} Default: ${shownFallback}.`
}

export function exitCodes(): readonly (readonly [code: number, meaning: string])[] {
  return (Object.keys(EXIT) as (keyof typeof EXIT)[]).map((key) => [EXIT[key], EXIT_MEANINGS[key]])
}

function exitCodeLines(): string[] {
  return wrapped(
    `Exit codes: ${exitCodes()
      .map(([code, meaning]) => `${code} ${meaning}`)
      .join('; ')}.`,
    '',
  )
}

function positionalName({ name, optional, repeats }: Positional): string {
  const many = repeats ? `${name}…` : name
  return optional ? `[${many}]` : many
}

function commandLines(commands: readonly Command[]): string[] {
  const width = Math.max(...commands.map(({ name }) => name.length))
  return commands.map(({ name, summary }) => `  ${name.padEnd(width)}   ${summary}`)
}

function flagLines(flag: Flag): string[] {
  const variable = flag.env === undefined ? '' : `  (${flag.env})`
  return [`  ${flagName(flag)}${variable}`, ...wrapped(flagHelp(flag))]
}

function helpFlagLines(): string[] {
  return ['  --help, -h\n      Prints this help.']
}

function wrapped(text: string, indent = INDENT): string[] {
  const lines: string[] = []
  let line = indent
  for (const word of text.split(' ')) {
    if (line.length + word.length > WIDTH) {
      lines.push(line.trimEnd())
      line = indent
    }
    line += `${word} `
  }
  return [...lines, line.trimEnd()]
}

export function usageText(errors: readonly FieldError[]): string {
  const lines = errors.map(({ field, value, fix }) => {
    return value === undefined ? `  ${field}: ${fix}` : `  ${field}: ${fix} (got ${JSON.stringify(value)})`
  })
  return [`sluice: invalid ${errors.length === 1 ? 'setting' : 'settings'}`, ...lines, ''].join('\n')
}
