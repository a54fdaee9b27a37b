// Parses the arguments of a command. Reports all errors together, with the closest valid name.

import { parseArgs } from 'node:util'
import { nearest, suggestion } from 'sluice'
import type { Environment } from '../process/terminal.ts'
import { printable } from '../text/printable.ts'
import type { Flag, Positional, Syntax } from './command.ts'

/** Parsed arguments; each value was accepted by its flag. */
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

  /** The last value given, or the default of the flag. */
  text(flag: string): string | undefined {
    return this.#texts.get(flag)?.at(-1)
  }

  texts(flag: string): readonly string[] {
    return this.#texts.get(flag) ?? []
  }
}

type Parsed = { readonly given: Given; readonly errors: readonly string[] }

export function readArguments(syntax: Syntax, args: readonly string[], env: Environment): Parsed {
  const errors: string[] = []
  const texts = new Map<string, string[]>()
  const positionals: string[] = []
  // The argument after a mistyped flag may be its value, possibly a secret, so it is not printed.
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
    if (flag === undefined) errors.push(unknownFlag(syntax, token.rawName, token.name))
    else if (flag.value === undefined && token.value !== undefined) errors.push(`--${flag.name}: takes no value`)
    else texts.set(flag.name, [...(texts.get(flag.name) ?? []), token.value ?? ''])
  }
  for (const flag of syntax.flags) readDefault(flag, texts, env)
  for (const flag of syntax.flags) errors.push(...(texts.get(flag.name) ?? []).flatMap((text) => errorsOf(flag, text)))
  errors.push(...positionalErrors(syntax.positionals, positionals, unclear))
  return { given: new Given(positionals, texts), errors }
}

/** Treats an empty variable as unset, because container tools pass unset variables that way. */
function readDefault({ name, env: variable, fallback }: Flag, texts: Map<string, string[]>, env: Environment): void {
  const text = (variable && env[variable]) || fallback
  if (!texts.has(name) && text !== undefined) texts.set(name, [text])
}

function errorsOf({ name, value, choices, accepts, fix = 'give a value', secret }: Flag, text: string): string[] {
  if (value === undefined) return []
  const got = gotText(printable(text, secret))
  if (choices !== undefined && !choices.includes(text))
    return [`--${name}: use one of ${choices.join(', ')}${suggestion(text, choices)}${got}`]
  return text === '' || accepts?.(text) === false ? [`--${name}: ${fix}${got}`] : []
}

function unknownFlag({ name, flags }: Syntax, rawName: string, mistyped: string): string {
  const meant = nearest(mistyped, [...flags.map((flag) => flag.name), 'help'])
  const hint = meant === undefined ? `sluice ${name} --help lists all flags` : `did you mean --${meant}?`
  return `${rawName}: unknown flag; ${hint}`
}

/** ` (got "…")`, or nothing for a text that must not be printed. */
function gotText(text: string | undefined): string {
  return text === undefined ? '' : ` (got ${JSON.stringify(text)})`
}

/** `unclear` counts arguments after mistyped flags, which may be positionals: that many may be missing. */
function positionalErrors(expected: readonly Positional[], found: readonly string[], unclear: number): string[] {
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
    ...extra.map((text) => `unexpected argument${got(text)}`),
  ]
}
