// Text in SQL and JSON for ClickHouse. Every value that does not come from this folder passes through `literal`.

const ESCAPES: Readonly<Record<string, string>> = {
  '\\': '\\\\',
  "'": "\\'",
  '\0': '\\0',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\b': '\\b',
  '\f': '\\f',
}
/** Surrogates that are not part of a pair. */
const LONE_SURROGATE = /\p{Surrogate}/u
/** JSON.stringify escapes only lone surrogates in this way. */
const ESCAPED_SURROGATE = '\\ud'

/** A string literal. ClickHouse 18.16 has no query parameters. */
export function literal(text: string): string {
  return `'${wellFormed(text).replace(/[\\'\0\n\r\t\b\f]/g, (character) => ESCAPES[character] ?? character)}'`
}

/** JSON in one line. ClickHouse refuses lone surrogates: they become U+FFFD. */
export function jsonText(value: unknown): string {
  const json = JSON.stringify(value)
  if (!json.includes(ESCAPED_SURROGATE)) return json
  return JSON.stringify(value, (_, part) => (typeof part === 'string' ? wellFormed(part) : part))
}

function wellFormed(text: string): string {
  return LONE_SURROGATE.test(text) ? Buffer.from(text).toString() : text
}
