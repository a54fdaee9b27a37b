// Percent-encoding of arbitrary text, invalid Unicode included: never throws, returns ASCII only.

const REPLACEMENT = '\uFFFD'

/** The UTF-8 bytes of a character that needs encoding; a lone surrogate becomes U+FFFD. */
export function percentEncoded(character: string): string {
  const code = character.charCodeAt(0)
  const lone = character.length === 1 && code >= 0xd800 && code <= 0xdfff
  return encodeURIComponent(lone ? REPLACEMENT : character)
}
