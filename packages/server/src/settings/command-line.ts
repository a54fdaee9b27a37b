// Arguments and environment → settings. Everything wrong is told at once, each mistake with its field, value and fix;
// a setting that would silently do nothing is a mistake too.

import { parseArgs } from 'node:util'
import { type Fault, nearest, suggestion } from 'sluice'
import { printable } from '../text/printable.ts'
import { SETTINGS, type Setting, type Settings, type SettingsTable } from './settings.ts'

export type Command<S = Settings> =
  | { readonly kind: 'wrong'; readonly faults: readonly Fault[] }
  | { readonly kind: 'serve'; readonly settings: S; readonly warnings: readonly string[] }

type Environment = Readonly<Record<string, string | undefined>>
/** What was given for a setting, and where: faults and fixes name that place. */
type Given = { readonly place: string; readonly text: string }
type AnySetting = Setting<unknown, string>
type Table = Readonly<Record<string, AnySetting>>

/** Variables of other commands. */
const NOT_OURS = ['SLUICE_URL', 'SLUICE_TOKEN']

export function readCommand(args: readonly string[], environment: Environment): Command {
  return readSettings(SETTINGS, args, environment)
}

/** The settings of a command that has a table of its own. */
export function readSettings<S>(of: SettingsTable<S>, args: readonly string[], environment: Environment): Command<S> {
  const table: Table = of
  const entries = Object.entries(table)
  const faults: Fault[] = []
  const flags = readFlags(table, args, faults)
  const given = new Map<string, Given>()
  for (const [name, setting] of entries) {
    const found = flags.get(setting.flag) ?? fromEnvironment(setting, environment)
    if (found !== undefined) given.set(name, found)
  }
  const values = entries.map(([name, setting]) => [name, settingValue(setting, given.get(name), faults)] as const)
  for (const name of given.keys()) refuseIgnored(name, table, given, faults)
  if (faults.length === 0) refuseClashes(table, Object.fromEntries(values), given, faults)
  if (faults.length > 0) return { kind: 'wrong', faults }
  // One value per entry of the table, each of the type that its own `read` and `fallback` return.
  const settings = Object.fromEntries(values) as unknown as S
  return { kind: 'serve', settings, warnings: unknownVariables(table, environment) }
}

function readFlags(table: Table, args: readonly string[], faults: Fault[]): Map<string, Given> {
  const byFlag = new Map(Object.values(table).map((setting) => [setting.flag, setting]))
  const options = Object.fromEntries([...byFlag.keys()].map((flag) => [flag, { type: 'string' as const }]))
  const { tokens } = parseArgs({ args: [...args], options, strict: false, allowPositionals: true, tokens: true })
  const flags = new Map<string, Given>()
  let afterUnknown = false
  for (const token of tokens) {
    if (token.kind === 'positional') {
      // Skips the value of a mistyped flag: it is no mistake of its own, and may be a secret.
      if (!afterUnknown) faults.push(unexpected(token.value))
    } else if (token.kind === 'option' && token.name in options) {
      const before = byFlag.get(token.name)?.repeats ? flags.get(token.name)?.text : undefined
      const text = before === undefined ? (token.value ?? '') : `${before} ${token.value ?? ''}`
      flags.set(token.name, { place: `--${token.name}`, text })
    } else if (token.kind === 'option') {
      faults.push(unknownFlag(token.rawName, token.name, [...byFlag.keys()]))
    }
    afterUnknown = token.kind === 'option' && !(token.name in options)
  }
  return flags
}

function unexpected(text: string): Fault {
  const fix = 'remove it: settings are given as --flag value'
  return { field: 'argument', value: printable(text, false), fix }
}

function unknownFlag(rawName: string, name: string, known: readonly string[]): Fault {
  const meant = nearest(name, [...known, 'help', 'version'])
  const hint = meant === undefined ? '--help lists all flags' : `did you mean --${meant}?`
  return { field: rawName, value: undefined, fix: `unknown flag; ${hint}` }
}

/** An empty variable counts as absent: that is what container tools write for "not set". */
function fromEnvironment({ env }: AnySetting, environment: Environment): Given | undefined {
  const text = environment[env]
  return text ? { place: env, text } : undefined
}

function settingValue(setting: AnySetting, given: Given | undefined, faults: Fault[]): unknown {
  if (given === undefined) return setting.fallback()
  const value = setting.read(given.text)
  if (value !== undefined) return value
  const fix = setting.fixFor?.(given.text) ?? setting.fix
  faults.push({ field: given.place, value: printable(given.text, setting.secret), fix })
  return undefined
}

function refuseIgnored(name: string, table: Table, given: ReadonlyMap<string, Given>, faults: Fault[]): void {
  const { needs = [], needsOneOf, excludes, secret } = table[name] ?? {}
  const { place = name, text = '' } = given.get(name) ?? {}
  const value = printable(text, secret)
  for (const needed of [needs].flat().filter((one) => !given.has(one))) {
    faults.push({ field: place, value, fix: `remove it, or give --${table[needed]?.flag}: it needs that` })
  }
  if (needsOneOf !== undefined && !needsOneOf.some((other) => given.has(other))) {
    const others = needsOneOf.map((other) => `--${table[other]?.flag}`).join(' or ')
    faults.push({ field: place, value, fix: `remove it, or give ${others}: the embedded database is for one process` })
  }
  if (excludes !== undefined && given.has(excludes)) {
    faults.push({ field: place, value, fix: `remove it: it does nothing with --${table[excludes]?.flag}` })
  }
}

/** Each by itself is right, but not together. */
function refuseClashes(table: Table, all: object, given: ReadonlyMap<string, Given>, faults: Fault[]): void {
  for (const [name, { place, text }] of given) {
    const { clash, secret } = table[name] ?? {}
    const fix = clash?.(all)
    if (fix !== undefined) faults.push({ field: place, value: printable(text, secret), fix })
  }
}

function unknownVariables(table: Table, environment: Environment): string[] {
  const variables = Object.values(table).map(({ env }) => env)
  const known = [...variables, ...NOT_OURS]
  const unknown = Object.keys(environment).filter((name) => name.startsWith('SLUICE_') && !known.includes(name))
  return unknown.map((name) => `${name} is not a setting${suggestion(name, variables)}`)
}
