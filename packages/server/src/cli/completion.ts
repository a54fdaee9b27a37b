// `sluice completion`: prints a shell script that completes commands, flags, choices and files. The script contains
// the whole table, so that completion starts no process.

import { EXIT } from '../process/exit-codes.ts'
import { type Command, defineCommand, type Flag } from './command.ts'

const SHELLS = ['bash', 'zsh', 'fish'] as const

/** `commands` is a function because the list includes this command. */
export function completionCommand(commands: () => readonly Command[]): Command {
  return defineCommand({
    name: 'completion',
    summary: 'Prints a script for tab completion of commands and flags.',
    positionals: [{ name: '<shell>', help: `a shell: ${SHELLS.join(', ')}`, choices: SHELLS }],
    flags: [],
    examples: [
      { does: 'bash: in ~/.bashrc', line: 'eval "$(sluice completion bash)"' },
      { does: 'zsh: in ~/.zshrc, after compinit', line: 'eval "$(sluice completion zsh)"' },
      { does: 'fish', line: 'sluice completion fish > ~/.config/fish/completions/sluice.fish' },
    ],
    run: async ({ positionals: [shell] }, terminal) => {
      const script = shell === 'fish' ? fishScript : shell === 'zsh' ? zshScript : bashScript
      terminal.out(script(commands()))
      return EXIT.done
    },
  })
}

/** `words` are the possible next words after `path`. */
type Step = { readonly path: string; readonly words: readonly string[] }

function stepsOf(commands: readonly Command[]): Step[] {
  const firstWords = [...new Set(commands.map(({ name }) => name.split(' ')[0] ?? ''))]
  const groups = firstWords.filter((word) => commands.some(({ name }) => name.startsWith(`${word} `)))
  return [
    { path: '', words: firstWords },
    ...groups.map((group) => ({ path: group, words: secondWords(commands, group) })),
    ...commands.map((command) => ({ path: command.name, words: wordsAfter(command) })),
  ]
}

function secondWords(commands: readonly Command[], group: string): string[] {
  return commands
    .map(({ name }) => name.split(' '))
    .flatMap(([first, second]) => (first === group && second ? [second] : []))
}

function wordsAfter({ positionals, flags }: Command): string[] {
  return [...positionals.flatMap(({ choices = [] }) => choices), ...flags.map(({ name }) => `--${name}`), '--help']
}

function takesFiles({ positionals }: Command): boolean {
  return positionals.some(({ name }) => name === '<file>')
}

function flagsWhere(commands: readonly Command[], predicate: (flag: Flag) => boolean): string[] {
  return [...new Set(commands.flatMap(({ flags }) => flags.filter(predicate)).map(({ name }) => `--${name}`))]
}

/** Shared by bash and zsh: sets `next` to the possible words, and `files` where a file may follow. */
function caseLines(commands: readonly Command[]): string {
  const choices = new Map(commands.flatMap(({ flags }) => flags).map((flag) => [flag.name, flag.choices]))
  const values = flagsWhere(commands, ({ value, choices: some, isFile }) => value !== undefined && !some && !isFile)
  const fileFlags = flagsWhere(commands, ({ isFile }) => isFile === true)
  const takers = commands.filter(takesFiles).map(({ name }) => `"${name}"`)
  return [
    '  case "$previous" in',
    ...(fileFlags.length === 0 ? [] : [`    ${fileFlags.join('|')}) files=1 ;;`]),
    ...[...choices].flatMap(([name, some]) => (some ? [`    --${name}) next="${some.join(' ')}" ;;`] : [])),
    ...(values.length === 0 ? [] : [`    ${values.join('|')}) ;;`]),
    '    *)',
    '      case "$typed" in',
    ...stepsOf(commands).map(({ path, words }) => `        "${path}") next="${words.join(' ')}" ;;`),
    '      esac',
    ...(takers.length === 0 ? [] : [`      case "$typed" in ${takers.join('|')}) files=1 ;; esac`]),
    '      ;;',
    '  esac',
  ].join('\n')
}

/** A command in a group has two words. */
function groupCase(commands: readonly Command[]): string {
  const groups = new Set(commands.flatMap(({ name }) => (name.includes(' ') ? [name.split(' ')[0]] : [])))
  return `case "$typed" in ${[...groups].join('|') || '-'})`
}

function bashScript(commands: readonly Command[]): string {
  return `_sluice() {
  local word="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" typed="" next="" files=""
  if (( COMP_CWORD > 1 )); then typed="\${COMP_WORDS[1]}"; fi
  ${groupCase(commands)} if (( COMP_CWORD > 2 )); then typed="$typed \${COMP_WORDS[2]}"; fi ;; esac
${caseLines(commands)}
  COMPREPLY=($(compgen -W "$next" -- "$word"))
  if [ -n "$files" ]; then COMPREPLY+=($(compgen -f -- "$word")); compopt -o filenames 2>/dev/null; fi
  return 0
}
complete -F _sluice sluice
`
}

function zshScript(commands: readonly Command[]): string {
  return `#compdef sluice
_sluice() {
  local previous="\${words[CURRENT-1]}" typed="" next="" files=""
  if (( CURRENT > 2 )); then typed="\${words[2]}"; fi
  ${groupCase(commands)} if (( CURRENT > 3 )); then typed="$typed \${words[3]}"; fi ;; esac
${caseLines(commands)}
  compadd -- \${=next}
  if [[ -n "$files" ]]; then _files; fi
  return 0
}
compdef _sluice sluice
`
}

function fishScript(commands: readonly Command[]): string {
  const quoted = (text: string) => `'${text.replaceAll("'", "\\'")}'`
  const firstWords = [...new Set(commands.map(({ name }) => name.split(' ')[0] ?? ''))]
  const lines = firstWords.map((word) => {
    const own = commands.find(({ name }) => name === word)?.summary ?? secondWords(commands, word).join(', ')
    return `complete -c sluice -f -n __fish_use_subcommand -a ${word} -d ${quoted(own)}`
  })
  for (const command of commands) {
    const [first = '', second] = command.name.split(' ')
    const inGroup = `__fish_seen_subcommand_from ${first}`
    const siblings = secondWords(commands, first).join(' ')
    const here = second === undefined ? inGroup : `${inGroup}; and __fish_seen_subcommand_from ${second}`
    if (second !== undefined) {
      const choosing = `${inGroup}; and not __fish_seen_subcommand_from ${siblings}`
      lines.push(`complete -c sluice -f -n ${quoted(choosing)} -a ${second} -d ${quoted(command.summary)}`)
    }
    if (takesFiles(command)) lines.push(`complete -c sluice -F -n ${quoted(here)}`)
    const choices = command.positionals.flatMap((positional) => positional.choices ?? [])
    if (choices.length > 0) lines.push(`complete -c sluice -f -n ${quoted(here)} -a ${quoted(choices.join(' '))}`)
    lines.push(
      ...command.flags.map((flag) => `complete -c sluice -n ${quoted(here)} ${fishFlag(flag)} -d ${quoted(flag.help)}`),
    )
  }
  return `${lines.join('\n')}\n`
}

function fishFlag({ name, value, choices, isFile }: Flag): string {
  const argument = value === undefined ? '' : choices ? ` -x -a '${choices.join(' ')}'` : isFile ? ' -r -F' : ' -x'
  return `-l ${name}${argument}`
}
