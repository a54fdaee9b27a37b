// Row of a table of settings: flag, environment variable, help, default and parser.

import type { Settings } from './settings.ts'

export type Setting<T, Name extends string = keyof Settings> = {
  readonly flag: string
  readonly env: string
  /** Placeholder of the value in `--help`: `<port>`. */
  readonly value: string
  readonly help: string
  readonly fallback: () => T
  /** Default as shown to people; empty without a default. */
  readonly shownFallback: string
  /** Undefined for invalid text; `fix` then names the fix. */
  readonly read: (text: string) => T | undefined
  readonly fix: string
  /** More specific fix for some invalid texts. */
  readonly fixFor?: (text: string) => string | undefined
  /** Settings without which, or with which, this one has no effect. */
  readonly needs?: Name | readonly Name[]
  readonly needsOneOf?: readonly Name[]
  readonly excludes?: Name
  /** Returns the fix if the value conflicts with other settings. */
  readonly conflict?: (all: Partial<Settings>) => string | undefined
  /** May be given several times; the texts are joined by spaces. */
  readonly repeats?: true
  /** A flag and variable that would be mistaken for this setting: refused, with the fix. */
  readonly insteadOf?: { readonly flag: string; readonly env: string; readonly fix: string }
  /** Variable of envoyproxy/ratelimit with this meaning: read beside its configuration, if the setting is not given. */
  readonly original?: OriginalVariable
  /** Never shown, not even in errors. */
  readonly secret?: true
}

/** `whenTrue`: it is a boolean, and this is the text of the setting if it is true; `off` if it is false. */
export type OriginalVariable = { readonly env: string; readonly whenTrue?: string }

export type SettingsTable<S> = { readonly [K in keyof S]: Setting<S[K], Extract<keyof S, string>> }

export function readInteger(text: string, min: number, max: number): number | undefined {
  const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN
  return value >= min && value <= max ? value : undefined
}
