// Arguments and environment → settings. Everything wrong is told at once, each mistake with its field, value and fix;
// a setting that would silently do nothing is a mistake too.

import { parseArgs } from 'node:util'
import type { Fault } from 'sluice'
import { nearest, suggestion } from './nearest.ts'
import { SETTINGS, type Setting, type Settings } from './settings.ts'

export type Command =
  | { readonly kind: 'wrong'; readonly faults: readonly Fault[] }
  | { readonly kind: 'serve'; readonly settings: Settings; readonly warnings: readonly string[] }

type Environment = Readonly<Record<string, string | undefined>>
/** What was given for a setting, and where: faults and fixes name that place. */
type Given = { readonly place: string; readonly text: string }

const ENTRIES = Object.entries(SETTINGS) as [keyof Settings, Setting<unknown>][]
const FLAGS = ENTRIES.map(([, { flag }]) => flag)
const VARIABLES = ENTRIES.map(([, { env }]) => env)
/** Variables of other commands. */
const NOT_OURS = ['SLUICE_URL', 'SLUICE_TOKEN']

export function readCommand(args: readonly string[], environment: Environment): Command {
  const faults: Fault[] = []
  const flags = readFlags(args, faults)
  const given = new Map<keyof Settings, Given>()
  for (const [name, setting] of ENTRIES) {
    const found = flags.get(setting.flag) ?? fromEnvironment(setting, environment)
    if (found !== undefined) given.set(name, found)
  }
  const values = ENTRIES.map(([name, setting]) => [name, settingValue(setting, given.get(name), faults)] as const)
  for (const [name, setting] of ENTRIES) refuseIgnored(name, setting, given, faults)
  if (faults.length > 0) return { kind: 'wrong', faults }
  // One value per entry of SETTINGS, each of the type that its own `read` and `fallback` return.
  const settings = Object.fromEntries(values) as unknown as Settings
  return { kind: 'serve', settings, warnings: unknownVariables(environment) }
}

function readFlags(args: readonly string[], faults: Fault[]): Map<string, Given> {
  const strings = FLAGS.map((flag) => [flag, { type: 'string' as const }])
  const options = Object.fromEntries(strings)
  const { tokens } = parseArgs({ args: [...args], options, strict: false, allowPositionals: true, tokens: true })
  const flags = new Map<string, Given>()
  for (const token of tokens) {
    if (token.kind === 'positional') {
      faults.push({ field: 'argument', value: token.value, fix: 'remove it: settings are given as --flag value' })
    } else if (token.kind === 'option' && token.name in options) {
      flags.set(token.name, { place: `--${token.name}`, text: token.value ?? '' })
    } else if (token.kind === 'option') {
      faults.push(unknownFlag(token.rawName, token.name))
    }
  }
  return flags
}

function unknownFlag(rawName: string, name: string): Fault {
  const meant = nearest(name, [...FLAGS, 'help', 'version'])
  const hint = meant === undefined ? '--help lists all flags' : `did you mean --${meant}?`
  return { field: rawName, value: undefined, fix: `unknown flag; ${hint}` }
}

/** An empty variable counts as absent: that is what container tools write for "not set". */
function fromEnvironment({ env }: Setting<unknown>, environment: Environment): Given | undefined {
  const text = environment[env]
  return text ? { place: env, text } : undefined
}

function settingValue(setting: Setting<unknown>, given: Given | undefined, faults: Fault[]): unknown {
  if (given === undefined) return setting.fallback()
  const value = setting.read(given.text)
  const shown = setting.secret ? undefined : given.text
  if (value === undefined) faults.push({ field: given.place, value: shown, fix: setting.fix })
  return value
}

function refuseIgnored(
  name: keyof Settings,
  { needs, excludes }: Setting<unknown>,
  given: ReadonlyMap<keyof Settings, Given>,
  faults: Fault[],
): void {
  const found = given.get(name)
  if (found === undefined) return
  const { place, text } = found
  if (needs !== undefined && !given.has(needs)) {
    faults.push({ field: place, value: text, fix: `remove it, or give --${SETTINGS[needs].flag}: it needs that` })
  }
  if (excludes !== undefined && given.has(excludes)) {
    faults.push({ field: place, value: text, fix: `remove it: it does nothing with --${SETTINGS[excludes].flag}` })
  }
}

function unknownVariables(environment: Environment): string[] {
  const known = [...VARIABLES, ...NOT_OURS]
  const unknown = Object.keys(environment).filter((name) => name.startsWith('SLUICE_') && !known.includes(name))
  return unknown.map((name) => `${name} is not a setting${suggestion(name, VARIABLES)}`)
}
