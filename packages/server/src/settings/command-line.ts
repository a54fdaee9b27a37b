// Parses arguments and environment variables into settings. Reports all mistakes together, each with field, value and
// fix; a setting without effect is a mistake too.

import { parseArgs } from 'node:util'
import { type FieldError, nearest, suggestion } from 'sluice'
import { printable } from '../text/printable.ts'
import { otherVariables } from './envoy-settings.ts'
import type { Setting, SettingsTable } from './setting.ts'
import { SETTINGS, type Settings } from './settings.ts'

export type CommandLine<S = Settings> =
  | { readonly kind: 'wrong'; readonly fieldErrors: readonly FieldError[] }
  | ValidCommandLine<S>

export type ValidCommandLine<S = Settings> = {
  readonly kind: 'serve'
  readonly settings: S
  readonly warnings: readonly string[]
  /** Settings that variables of envoyproxy/ratelimit gave: `SHADOW_MODE: --envoy-shadow-mode on`. */
  readonly adopted: readonly string[]
}

type Environment = Readonly<Record<string, string | undefined>>
/** Text of a setting, and the flag or variable that it came from. */
type Given = { readonly field: string; readonly text: string }
type AnySetting = Setting<unknown, string>
type Refused = NonNullable<AnySetting['insteadOf']>
type Table = Readonly<Record<string, AnySetting>>

/** Variables of client commands, such as `sluice check`. */
const CLIENT_VARIABLES = ['SLUICE_URL', 'SLUICE_TOKEN', 'SLUICE_GRPC_URL']

/** Texts of `strconv.ParseBool`. */
const [GO_TRUE, GO_FALSE] = [/^(1|t|T|true|True|TRUE)$/, /^(0|f|F|false|False|FALSE)$/]
/** The setting beside which variables of envoyproxy/ratelimit are read. */
const ORIGINAL_CONFIG = 'envoyConfig' satisfies keyof Settings

const NO_DETECTORS =
  'remove it: the detectors are gone, because each counted one process only; find abuse in the events and send a ' +
  'signal, as in docs/guides/exceptions.md#finding-abuse'
/** Settings that were removed. Refused, because ignoring one drops a protection unnoticed. */
const REMOVED: readonly Refused[] = ['detect-refusals', 'detect-keys', 'detect-ttl'].map((flag) => {
  return { flag, env: `SLUICE_${flag.toUpperCase().replaceAll('-', '_')}`, fix: NO_DETECTORS }
})

/** `others`: settings of other commands, by command, for warnings. */
export function readCommand(
  args: readonly string[],
  environment: Environment,
  others: Readonly<Record<string, Table>> = {},
): CommandLine {
  const read = readSettings(SETTINGS, args, environment, others)
  if (read.kind === 'wrong' || read.settings.envoyConfig === undefined) return read
  return { ...read, warnings: [...read.warnings, ...otherVariables(environment)] }
}

/** Reads the settings of a command that has its own table. */
export function readSettings<S>(
  of: SettingsTable<S>,
  args: readonly string[],
  environment: Environment,
  others: Readonly<Record<string, Table>> = {},
): CommandLine<S> {
  const table: Table = of
  const entries = Object.entries(table)
  const fieldErrors: FieldError[] = []
  const refused = [...REMOVED, ...Object.values(table).flatMap(({ insteadOf }) => insteadOf ?? [])]
  const flags = readFlags(table, refused, args, fieldErrors)
  rejectVariables(refused, environment, fieldErrors)
  const given = new Map<string, Given>()
  for (const [name, setting] of entries) {
    const found = flags.get(setting.flag) ?? fromEnvironment(setting, environment)
    if (found !== undefined) given.set(name, found)
  }
  const own = [...given.keys()]
  if (given.has(ORIGINAL_CONFIG)) addOriginalVariables(entries, environment, given, fieldErrors)
  const values = entries.map(([name, setting]) => [name, settingValue(setting, given.get(name), fieldErrors)] as const)
  for (const name of own) rejectIneffective(name, table, given, fieldErrors)
  if (fieldErrors.length === 0) rejectConflicts(table, Object.fromEntries(values), own, given, fieldErrors)
  if (fieldErrors.length > 0) return { kind: 'wrong', fieldErrors }
  // One value per entry of the table, of the type that its `read` and `fallback` return.
  const settings = Object.fromEntries(values) as unknown as S
  const warnings = unknownVariables(table, environment, others)
  return { kind: 'serve', settings, warnings, adopted: adoptedSettings(table, given) }
}

function readFlags(
  table: Table,
  refused: readonly Refused[],
  args: readonly string[],
  fieldErrors: FieldError[],
): Map<string, Given> {
  const byFlag = new Map(Object.values(table).map((setting) => [setting.flag, setting]))
  const options = Object.fromEntries([...byFlag.keys()].map((flag) => [flag, { type: 'string' as const }]))
  const { tokens } = parseArgs({ args: [...args], options, strict: false, allowPositionals: true, tokens: true })
  const flags = new Map<string, Given>()
  let afterUnknown = false
  for (const token of tokens) {
    if (token.kind === 'positional') {
      // Skips the value of a mistyped flag: it is not a mistake of its own, and may be a secret.
      if (!afterUnknown) fieldErrors.push(unexpected(token.value))
    } else if (token.kind === 'option' && token.name in options) {
      const before = byFlag.get(token.name)?.repeats ? flags.get(token.name)?.text : undefined
      const text = before === undefined ? (token.value ?? '') : `${before} ${token.value ?? ''}`
      flags.set(token.name, { field: `--${token.name}`, text })
    } else if (token.kind === 'option') {
      const fix = refused.find(({ flag }) => flag === token.name)?.fix ?? unknownFlagFix(token.name, [...byFlag.keys()])
      fieldErrors.push({ field: token.rawName, value: undefined, fix })
    }
    afterUnknown = token.kind === 'option' && !(token.name in options)
  }
  return flags
}

function unexpected(text: string): FieldError {
  const fix = 'remove it: settings are given as --flag value'
  return { field: 'argument', value: printable(text, false), fix }
}

function unknownFlagFix(name: string, known: readonly string[]): string {
  const meant = nearest(name, [...known, 'help', 'version'])
  return `unknown flag; ${meant === undefined ? '--help lists all flags' : `did you mean --${meant}?`}`
}

function rejectVariables(refused: readonly Refused[], environment: Environment, fieldErrors: FieldError[]): void {
  for (const { env, fix } of refused) {
    const given = fromEnvironment({ env }, environment)
    if (given !== undefined) fieldErrors.push({ field: env, value: given.text, fix })
  }
}

/** Treats an empty variable as unset, because container tools pass unset variables that way. */
function fromEnvironment({ env }: Pick<AnySetting, 'env'>, environment: Environment): Given | undefined {
  const text = environment[env]
  return text ? { field: env, text } : undefined
}

/** One without effect is no mistake: envoyproxy/ratelimit ignores it too. */
function addOriginalVariables(
  entries: readonly (readonly [name: string, setting: AnySetting])[],
  environment: Environment,
  given: Map<string, Given>,
  fieldErrors: FieldError[],
): void {
  for (const [name, { original }] of entries) {
    const found = original && fromEnvironment(original, environment)
    if (original === undefined || found === undefined || given.has(name)) continue
    const { field, text } = found
    if (original.whenTrue === undefined) given.set(name, found)
    else if (GO_TRUE.test(text)) given.set(name, { field, text: original.whenTrue })
    else if (GO_FALSE.test(text)) given.set(name, { field, text: 'off' })
    else fieldErrors.push({ field, value: printable(text, false), fix: 'use true or false' })
  }
}

function adoptedSettings(table: Table, given: ReadonlyMap<string, Given>): string[] {
  return [...given].flatMap(([name, { field, text }]) => {
    const { flag, original, secret } = table[name] ?? {}
    if (field !== original?.env) return []
    return `${field}: --${flag} ${printable(text, secret) ?? ''}`.trimEnd()
  })
}

function settingValue(setting: AnySetting, given: Given | undefined, fieldErrors: FieldError[]): unknown {
  if (given === undefined) return setting.fallback()
  const value = setting.read(given.text)
  if (value !== undefined) return value
  const fix = setting.fixFor?.(given.text) ?? setting.fix
  fieldErrors.push({ field: given.field, value: printable(given.text, setting.secret), fix })
  return undefined
}

function rejectIneffective(
  name: string,
  table: Table,
  given: ReadonlyMap<string, Given>,
  fieldErrors: FieldError[],
): void {
  const { needs = [], needsOneOf, excludes, secret } = table[name] ?? {}
  const { field = name, text = '' } = given.get(name) ?? {}
  const value = printable(text, secret)
  for (const needed of [needs].flat().filter((one) => !given.has(one))) {
    fieldErrors.push({
      field,
      value,
      fix: `remove it, or give --${table[needed]?.flag}: it requires that setting`,
    })
  }
  if (needsOneOf !== undefined && !needsOneOf.some((other) => given.has(other))) {
    const others = needsOneOf.map((other) => `--${table[other]?.flag}`).join(' or ')
    fieldErrors.push({
      field,
      value,
      fix: `remove it, or give ${others}: the embedded database allows one process`,
    })
  }
  if (excludes !== undefined && given.has(excludes)) {
    fieldErrors.push({ field, value, fix: `remove it: it has no effect with --${table[excludes]?.flag}` })
  }
}

/** Rejects settings that are valid alone but conflict with others. */
function rejectConflicts(
  table: Table,
  all: object,
  names: readonly string[],
  given: ReadonlyMap<string, Given>,
  fieldErrors: FieldError[],
): void {
  for (const name of names) {
    const { field = name, text = '' } = given.get(name) ?? {}
    const { conflict, secret } = table[name] ?? {}
    const fix = conflict?.(all)
    if (fix !== undefined) fieldErrors.push({ field, value: printable(text, secret), fix })
  }
}

function unknownVariables(table: Table, environment: Environment, others: Readonly<Record<string, Table>>): string[] {
  const variables = Object.values(table).map(({ env }) => env)
  const known = [...variables, ...CLIENT_VARIABLES]
  const unknown = Object.keys(environment).filter((name) => name.startsWith('SLUICE_') && !known.includes(name))
  return unknown.map((name) => {
    const owner = Object.entries(others).find(([, other]) => Object.values(other).some(({ env }) => env === name))
    if (owner !== undefined) return `${name} has no effect: it is a setting of sluice ${owner[0]} only`
    return `${name} is not a setting${suggestion(name, variables)}`
  })
}
