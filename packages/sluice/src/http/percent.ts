// Percent-encoding of text that may be anything, broken Unicode included: it never throws and gives ASCII only.

const REPLACEMENT = '\uFFFD'

/** The UTF-8 bytes of one character; half a surrogate pair is written as U+FFFD. For characters that need encoding. */
export function percentEncoded(character: string): string {
  const code = character.charCodeAt(0)
  const lone = character.length === 1 && code >= 0xd800 && code <= 0xdfff
  return encodeURIComponent(lone ? REPLACEMENT : character)
}
