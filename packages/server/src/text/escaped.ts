// Makes untrusted text safe for a terminal: clients choose keys and endpoints, and a terminal obeys escape sequences.

const ESCAPE = '\u001b'

/**
 * Control characters, line separators, unpaired surrogates, and format characters, which are invisible or reverse the
 * direction of the text.
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu
/** The same, except line feeds, which indented JSON contains. */
const UNSAFE_IN_JSON = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu

/**
 * Characters that no name, description or reason may have, as a class of a regular expression: controls (C0, DEL, C1),
 * line and paragraph separators, overrides and isolates of the direction of the text, unpaired surrogates, and
 * invisible format characters. Joiners (U+200C, U+200D) and marks of direction stay: scripts and emoji need them.
 */
export const UNPRINTABLE: string =
  '\\u0000-\\u001f\\u007f-\\u009f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff' +
  '\\u00ad\\u061c\\u180e\\u200b\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}'
const UNPRINTABLE_TEXT = new RegExp(`[${UNPRINTABLE}]`, 'u')

export function isPrintable(text: string): boolean {
  return !UNPRINTABLE_TEXT.test(text)
}

/** The escape sequences of cli/paint.ts, or an unsafe character other than a line feed or a tab. */
const UNSAFE_IN_OUTPUT = new RegExp(
  `${ESCAPE}\\[(?:[012]|3[123])m|(?![\\n\\t])[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Cs}]`,
  'gu',
)

/** Output of a command, of which any part may come from a client: only the colours of this program reach a terminal. */
export function safeOutput(text: string, hasColors: boolean): string {
  return text.replace(UNSAFE_IN_OUTPUT, (found) => {
    return hasColors && found.startsWith(`${ESCAPE}[`) ? found : found.replace(UNSAFE, escapeOf)
  })
}

const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** Replaces unsafe characters with escapes as in JSON, so the text stays on its line. */
export function escaped(text: string): string {
  return text.replace(UNSAFE, escapeOf)
}

/** Indented JSON of the same value. JSON.stringify alone leaves most unsafe characters as they are. */
export function escapedJson(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(UNSAFE_IN_JSON, escapeOf)
}

function escapeOf(character: string): string {
  const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index))
  return SHORT[character] ?? units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('')
}
