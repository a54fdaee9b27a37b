// Flags and output of commands that print a filtered list page by page.

import { wallClock } from 'sluice'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { aligned } from '../text/aligned.ts'
import { durationSeconds } from '../text/duration.ts'
import { escaped, escapedJson } from '../text/escaped.ts'
import { TIME_FIX, timeOf } from '../text/time.ts'
import type { Given } from './arguments.ts'
import { CommandError, type Flag } from './command.ts'

/** Keeps one long value from stretching the column of all rows; --json prints all of it. */
const CELL_LENGTH_MAX = 60

export function limitFlag(things: string, fallback: number): Flag {
  return {
    name: 'limit',
    value: '<number>',
    help: `Maximum number of ${things}.`,
    fallback: String(fallback),
    accepts: (text) => /^([1-9]\d{0,2}|1000)$/.test(text),
    fix: 'give a whole number from 1 to 1000',
  }
}

export function afterFlag(cursor: RegExp): Flag {
  return {
    name: 'after',
    value: '<next>',
    help: 'Continue after a previous page, with the value that it printed.',
    accepts: (text) => cursor.test(text),
    fix: 'give the value that the previous page printed',
  }
}

/** A time, or the time since then: `2030-01-31T12:00:00Z`, `15m`. */
export function timeFlag(name: string, help: string): Flag {
  return {
    name,
    value: '<time>',
    help: `${help} A time (RFC 3339), or how long ago: 15m, 12h, 7d.`,
    accepts: (text) => timeIn(text) !== undefined,
    fix: `${TIME_FIX}, or a whole number and a unit, m, h or d, such as 15m`,
  }
}

export function timeGiven(given: Given, flag: string): Date | undefined {
  const text = given.text(flag)
  return text === undefined ? undefined : timeIn(text)
}

function timeIn(text: string): Date | undefined {
  const seconds = durationSeconds(text)
  if (seconds === undefined) return timeOf(text)
  return new Date(Math.max(0, wallClock.nowUs() / 1000 - seconds * 1000))
}

/** `<path>?<query>`, without absent parameters. */
export function pathWith(path: string, parameters: Readonly<Record<string, string | undefined>>): string {
  const present = Object.entries(parameters).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return `${path}?${new URLSearchParams(present)}`
}

export type Listing = {
  /** Printed by --json. */
  readonly answer: unknown
  readonly header: readonly string[]
  readonly rows: readonly (readonly string[])[]
  /** Sentence for an empty list. */
  readonly none: string
  /** `--after` of the next page. */
  readonly next?: string | null
}

/** Prints the list, and on standard error that it is empty or how to continue. */
export function printList(
  { answer, header, rows, none, next = null }: Listing,
  given: Given,
  terminal: Terminal,
): void {
  if (given.has('json')) terminal.out(`${escapedJson(answer)}\n`)
  else if (rows.length === 0) terminal.tell(`${none}\n`)
  else terminal.out(`${aligned([header, ...rows.map((row) => row.map(cell))]).join('\n')}\n`)
  if (next !== null && !given.has('json')) terminal.tell(`More: --after ${escaped(next)}\n`)
}

function cell(value: string): string {
  const text = escaped(value)
  return text.length > CELL_LENGTH_MAX ? `${text.slice(0, CELL_LENGTH_MAX - 1)}…` : text
}

/** `name (id)` of a token, or the id alone. */
export function actorText(id: string, name: string | null): string {
  return name === null ? id : `${name} (${id})`
}

/** Throws if the range is empty, which would silently match nothing. */
export function requireRange(given: Given): { readonly since: Date | undefined; readonly until: Date | undefined } {
  const [since, until] = [timeGiven(given, 'since'), timeGiven(given, 'until')]
  if (since !== undefined && until !== undefined && until <= since)
    throw new CommandError(`--until: give a time after --since (got ${escapedJson(given.text('until'))})`, EXIT.invalid)
  return { since, until }
}
