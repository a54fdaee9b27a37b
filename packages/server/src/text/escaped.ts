// Makes untrusted text safe for a terminal: clients choose keys and endpoints, and a terminal obeys escape sequences.

/**
 * Control characters, line separators, unpaired surrogates, and format characters, which are invisible or reverse the
 * direction of the text.
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu
/** The same, except line feeds, which indented JSON contains. */
const UNSAFE_IN_JSON = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu

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
