import { spawnSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import type { Command } from '../../src/cli/command.ts'
import { COMMANDS } from '../../src/cli/commands.ts'
import { cliPage } from '../../src/cli/page.ts'
import { VERSION } from '../../src/package-facts.ts'
import { ruleFile } from '../service.ts'
import { sluice } from './terminal.ts'

const NAMES = COMMANDS.map(({ name }) => name)

test('--help of the program names every command, in lines that fit a terminal', async () => {
  const { code, out, told } = await sluice(['--help'])
  expect({ code, told }).toEqual({ code: 0, told: '' })
  for (const { name, summary } of COMMANDS) expect(out).toMatch(new RegExp(`^  ${name} +${escaped(summary)}$`, 'm'))
})

describe.each(COMMANDS)('sluice $name', (command: Command) => {
  const { name, flags, positionals, examples } = command
  const words = name.split(' ')

  test('--help names every argument, whatever else is wrong', async () => {
    const { code, out } = await sluice([...words, '--no-such-flag', '--help'])
    expect(code).toBe(0)
    for (const { name: flag } of flags) expect(out).toContain(`  --${flag}`)
    for (const { name: positional } of positionals) expect(out).toContain(`  ${positional}\n`)
    expect(Math.max(...out.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100)
  })

  test('a mistyped flag is reported with the closest one, and nothing runs', async () => {
    const { code, out, told } = await sluice([...words, '--hepl'])
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(told).toMatch(/--hepl: unknown flag; (did you mean --help\?|--help lists all flags)/)
  })

  test('its examples use flags that it has', () => {
    for (const { line } of examples) {
      const [, own = ''] = line.split(`sluice ${name}`)
      const used = [...own.matchAll(/ --([\w-]+)/g)].map(([, flag]) => flag)
      expect(flags.map((flag) => flag.name)).toEqual(expect.arrayContaining(used))
    }
  })
})

describe('a command that does not exist', () => {
  test.each([
    [['serv'], 'sluice: unknown command "serv"; did you mean "sluice serve"?\n'],
    [['completion', 'basch'], '  <shell>: use one of bash, zsh, fish; did you mean "bash"? (got "basch")\n'],
    [['frobnicate'], `sluice: unknown command "frobnicate"; use one of serve, `],
    [['drill'], '  <outage>: give the outage to simulate: store-down\n'],
    [['drill', 'store-down', 'now', '--seconds', '9999', '--url=ftp://x'], '  unexpected argument (got "now")\n'],
  ])('%j', async (args, message) => {
    const { code, out, told } = await sluice(args)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(told).toContain(message)
  })
})

test.each([
  [['check', '--tokn', 'hunter2-canary', '--user', 'ada']],
  [['rules', 'list', '--tokn=hunter2-canary']],
  [['rules', 'list', 'https://admin:hunter2-canary@sluice']],
])('a token behind a mistyped flag, or in a URL, is not repeated: %j', async (args) => {
  const { code, out, told } = await sluice(args)
  expect(code).toBe(2)
  expect(out + told).not.toContain('hunter2')
})

test.each([
  [['serve', '--wrokers', '2'], '--wrokers: unknown flag; did you mean --workers?'],
  [['check', '--usr', 'ada'], '--usr: unknown flag; did you mean --user?'],
  [['drill', '--secods', '5', 'store-down'], '--secods: unknown flag; did you mean --seconds?'],
  [['rules', 'apply', '--yess', 'rules.yaml'], '--yess: unknown flag; did you mean --yes?'],
])('a mistyped flag is one mistake, with or without a value: %j', async (args, message) => {
  const { code, told } = await sluice(args)
  expect(code).toBe(2)
  expect(told).toContain(message)
  expect(told).not.toMatch(/^ {2}(argument|<)/m)
})

test('--help of a group lists its commands', async () => {
  const { code, out } = await sluice(['rules', '--help'])
  expect(code).toBe(0)
  const ofGroup = NAMES.filter((name) => name.startsWith('rules '))
  expect([...out.matchAll(/^ {2}(rules \w+) /gm)].map(([, name]) => name)).toEqual(ofGroup)
})

test('--version is that of the package', async () => {
  expect(await sluice(['--version'])).toEqual({ code: 0, out: `${VERSION}\n`, told: '' })
})

test('an unreachable node is reported with the fix', async () => {
  const { code, told } = await sluice(['drill', 'store-down'], { env: { SLUICE_URL: 'http://127.0.0.1:1' } })
  expect(code).toBe(1)
  expect(told).toMatch(/^sluice drill: http:\/\/127\.0\.0\.1:1 is unreachable: .+\n {2}Is a node running there\?/)
})

describe('completion', () => {
  test.each(['bash', 'zsh', 'fish'])('the script of %s knows every command and flag', async (shell) => {
    const { out } = await sluice(['completion', shell])
    for (const { name, flags } of COMMANDS) {
      for (const word of name.split(' ')) expect(out).toContain(word)
      for (const flag of flags) expect(out).toContain(shell === 'fish' ? `-l ${flag.name} ` : `--${flag.name}`)
    }
    const path = ruleFile(out, `sluice.${shell}`)
    const { status, stderr, error } = spawnSync(shell, ['-n', path], { encoding: 'utf8' })
    if (error === undefined) expect({ status, stderr }, 'the syntax').toEqual({ status: 0, stderr: '' })
  })

  test.each([
    [['sluice', ''], NAMES.map((name) => name.split(' ')[0])],
    [['sluice', 'com'], ['completion']],
    [['sluice', 'completion', 'z'], ['zsh']],
    [
      ['sluice', 'drill', '--'],
      ['--seconds', '--reason', '--url', '--token', '--help'],
    ],
    [['sluice', 'drill', '--url', ''], []],
  ])('bash completes %j', async (words, expected) => {
    const { out } = await sluice(['completion', 'bash'])
    const path = ruleFile(out, 'sluice.bash')
    const typed = words.map((word) => `'${word}'`).join(' ')
    const cursor = `COMP_WORDS=(${typed}); COMP_CWORD=${words.length - 1}`
    const script = `source ${path}; ${cursor}; _sluice; echo "\${COMPREPLY[@]}"`
    const { stdout, stderr } = spawnSync('bash', ['-c', script], { encoding: 'utf8' })
    expect(stderr).toBe('')
    expect(stdout.trim().split(/\s+/)).toEqual(expected.length === 0 ? [''] : [...new Set(expected)])
  })
})

// `npx vitest run packages/server/test/cli -u` writes the page.
test('docs/reference/cli.md is the table of commands', async () => {
  await expect(cliPage(COMMANDS)).toMatchFileSnapshot('../../../../docs/reference/cli.md')
})

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
