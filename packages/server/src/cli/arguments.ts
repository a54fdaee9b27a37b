// Arguments of a command → what was given. Everything wrong is told at once, with the nearest name that is right.

import { parseArgs } from 'node:util'
import { nearest, suggestion } from 'sluice'
import { printable } from '../text/printable.ts'
import type { Flag, Positional, Syntax } from './command.ts'
import type { Environment } from './terminal.ts'

/** What was given to a command: each text has been accepted by its flag. */
export class Given {
  readonly positionals: readonly string[]
  readonly #texts: ReadonlyMap<string, readonly string[]>

  constructor(positionals: readonly string[], texts: ReadonlyMap<string, readonly string[]>) {
    this.positionals = positionals
    this.#texts = texts
  }

  has(flag: string): boolean {
    return this.#texts.has(flag)
  }

  /** The last one given, or the fallback of the flag. */
  text(flag: string): string | undefined {
    return this.#texts.get(flag)?.at(-1)
  }

  texts(flag: string): readonly string[] {
    return this.#texts.get(flag) ?? []
  }
}

type Read = { readonly given: Given; readonly faults: readonly string[] }

export function readArguments(syntax: Syntax, args: readonly string[], env: Environment): Read {
  const faults: string[] = []
  const texts = new Map<string, string[]>()
  const positionals: string[] = []
  // Arguments after a mistyped flag are taken for its value, which may be a secret: none of them is reported.
  let unclear = 0
  let afterUnknown = false
  const options = Object.fromEntries(
    syntax.flags.map(({ name, value }) => [name, { type: value === undefined ? 'boolean' : 'string' } as const]),
  )
  const { tokens } = parseArgs({ args: [...args], options, strict: false, allowPositionals: true, tokens: true })
  for (const token of tokens) {
    if (token.kind === 'positional') {
      if (afterUnknown) unclear += 1
      else positionals.push(token.value)
    }
    afterUnknown = token.kind === 'option' && !(token.name in options)
    if (token.kind !== 'option') continue
    const flag = syntax.flags.find(({ name }) => name === token.name)
    if (flag === undefined) faults.push(unknownFlag(syntax, token.rawName, token.name))
    else if (flag.value === undefined && token.value !== undefined) faults.push(`--${flag.name}: takes no value`)
    else texts.set(flag.name, [...(texts.get(flag.name) ?? []), token.value ?? ''])
  }
  for (const flag of syntax.flags) readElsewhere(flag, texts, env)
  for (const flag of syntax.flags) faults.push(...(texts.get(flag.name) ?? []).flatMap((text) => faultsOf(flag, text)))
  faults.push(...positionalFaults(syntax.positionals, positionals, unclear))
  return { given: new Given(positionals, texts), faults }
}

/** An empty variable counts as absent: that is what container tools write for "not set". */
function readElsewhere({ name, env: variable, fallback }: Flag, texts: Map<string, string[]>, env: Environment): void {
  const elsewhere = (variable && env[variable]) || fallback
  if (!texts.has(name) && elsewhere !== undefined) texts.set(name, [elsewhere])
}

function faultsOf({ name, value, choices, accepts, fix = 'give a value', secret }: Flag, text: string): string[] {
  if (value === undefined) return []
  const got = gotText(printable(text, secret))
  if (choices !== undefined && !choices.includes(text))
    return [`--${name}: use one of ${choices.join(', ')}${suggestion(text, choices)}${got}`]
  return text === '' || accepts?.(text) === false ? [`--${name}: ${fix}${got}`] : []
}

function unknownFlag({ name, flags }: Syntax, rawName: string, mistyped: string): string {
  const meant = nearest(mistyped, [...flags.map((flag) => flag.name), 'help'])
  const hint = meant === undefined ? `sluice ${name} --help lists all` : `did you mean --${meant}?`
  return `${rawName}: unknown flag; ${hint}`
}

/** ` (got "…")`, or nothing for a text that is not to be printed. */
function gotText(text: string | undefined): string {
  return text === undefined ? '' : ` (got ${JSON.stringify(text)})`
}

/** `unclear` arguments may be the missing ones: a mistyped flag without a value does not make them missing. */
function positionalFaults(expected: readonly Positional[], found: readonly string[], unclear: number): string[] {
  const got = (text: string) => gotText(printable(text, false))
  const absent = expected.filter(({ optional }, index) => !optional && found[index] === undefined)
  const missing = absent.slice(unclear)
  const unknown = expected.flatMap(({ name, choices }, index) => {
    const text = found[index]
    return text === undefined || choices === undefined || choices.includes(text)
      ? []
      : [`${name}: use one of ${choices.join(', ')}${suggestion(text, choices)}${got(text)}`]
  })
  const extra = expected.at(-1)?.repeats ? [] : found.slice(expected.length)
  return [
    ...missing.map(({ name, help }) => `${name}: give ${help}`),
    ...unknown,
    ...extra.map((text) => `argument: remove it${got(text)}`),
  ]
}
