// Generates docs/reference/cli.md from the table of commands. A test compares the page; `vitest -u` writes it.

import type { Command, Flag } from './command.ts'
import { exitCodes, flagHelp, flagName, usageOf } from './help.ts'

export function cliPage(commands: readonly Command[]): string {
  return [
    INTRODUCTION,
    '| exit code | meaning |',
    '|---|---|',
    ...exitCodes().map(([code, meaning]) => `| ${code} | ${meaning} |`),
    '',
    '| command | |',
    '|---|---|',
    ...commands.map(({ name, summary }) => `| [\`${name}\`](#sluice-${name.replaceAll(' ', '-')}) | ${summary} |`),
    '',
    ...commands.flatMap(sectionOf),
  ].join('\n')
}

const INTRODUCTION = `# The command \`sluice\`

<!-- Generated from packages/server/src/cli/commands.ts by npx vitest run packages/server/test/cli -u -->

Run \`npx sluice …\` in a clone (after \`npm run build\`), or \`sluice …\` where \`@sluice/server\` is installed.
Data goes to standard output and messages to standard error, so that output can be piped; \`--json\` prints JSON.
Colours are used on terminals only, never with \`--no-color\` or the variable \`NO_COLOR\`. \`sluice completion\`
prints tab completion for your shell. All invalid arguments are reported together, with the closest valid name.
`

function sectionOf(command: Command): string[] {
  const { name, summary, details, positionals, flags, examples } = command
  return [
    `## sluice ${name}`,
    '',
    '```',
    usageOf(command),
    '```',
    '',
    details === undefined ? summary : `${summary} ${details}`,
    '',
    ...(name === 'serve' ? ['Its flags are the [settings](configuration.md).', ''] : argumentRows(positionals, flags)),
    '```',
    ...examples.flatMap(({ does, line }) => [`# ${does}`, line]),
    '```',
    '',
  ]
}

function argumentRows(positionals: Command['positionals'], flags: readonly Flag[]): string[] {
  if (positionals.length + flags.length === 0) return []
  const cell = (text: string) => text.replaceAll('|', '\\|')
  return [
    '| argument | meaning |',
    '|---|---|',
    ...positionals.map(({ name, help }) => `| \`${name}\` | ${cell(help)} |`),
    ...flags.map((flag) => `| \`${cell(flagName(flag))}\` | ${cell(flagHelp(flag))}${variableOf(flag)} |`),
    '',
  ]
}

function variableOf({ env }: Flag): string {
  return env === undefined ? '' : ` Variable: \`${env}\`.`
}
