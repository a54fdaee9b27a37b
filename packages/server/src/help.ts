// What the command line tells people: the text of `--help`, and usage mistakes.

import type { Fault } from 'sluice'
import { VERSION } from './package-facts.ts'
import { SETTINGS, type Setting } from './settings.ts'

const WIDTH = 100
const INDENT = '      '

export function helpText(): string {
  const settings: Setting<unknown>[] = Object.values(SETTINGS)
  return [
    `sluice ${VERSION}: a distributed rate limiter behind one HTTP API`,
    '',
    'Usage: sluice [--flag value …]        every flag is also an environment variable; flags win',
    '       sluice drill store-down [--seconds 30] [--url <node>]        rehearses an outage of Redis',
    '',
    ...settings.flatMap(settingLines),
    '  --help, -h\n      Prints this.',
    '  --version\n      Prints the version.',
    '',
    'Exit codes: 0 stopped by a signal, 1 failed, 2 the settings or the rules are wrong.',
    '',
  ].join('\n')
}

function settingLines({ flag, value, env, help, shownFallback }: Setting<unknown>): string[] {
  const text = shownFallback === '' ? help : `${help} Default: ${shownFallback}.`
  return [`  --${flag} ${value}  (${env})`, ...wrapped(text)]
}

function wrapped(text: string): string[] {
  const lines: string[] = []
  let line = INDENT
  for (const word of text.split(' ')) {
    if (line.length + word.length > WIDTH) {
      lines.push(line.trimEnd())
      line = INDENT
    }
    line += `${word} `
  }
  return [...lines, line.trimEnd()]
}

export function usageText(faults: readonly Fault[]): string {
  const lines = faults.map(({ field, value, fix }) => {
    return value === undefined ? `  ${field}: ${fix}` : `  ${field}: ${fix} (got ${JSON.stringify(value)})`
  })
  return [`sluice: ${faults.length === 1 ? 'a setting is' : 'settings are'} wrong`, ...lines, ''].join('\n')
}
