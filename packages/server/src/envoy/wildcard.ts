// Wildcards of envoyproxy/ratelimit: `*` stands for any run of characters, also an empty one.

/** Whether the pattern matches the whole text. Linear in the length of the text for each `*`; never backtracks. */
export function matchesWildcard(pattern: string, text: string): boolean {
  return matchesParts(pattern.split('*'), text)
}

/** `parts` are the literal texts around the stars: at least one. */
export function matchesParts(parts: readonly string[], text: string): boolean {
  const first = parts[0] ?? ''
  const last = parts.at(-1) ?? ''
  if (parts.length === 1) return text === first
  if (!text.startsWith(first) || !text.endsWith(last) || text.length < first.length + last.length) return false
  let at = first.length
  const end = text.length - last.length
  for (let index = 1; index < parts.length - 1; index += 1) {
    const part = parts[index] ?? ''
    const found = text.indexOf(part, at)
    if (found < 0 || found + part.length > end) return false
    at = found + part.length
  }
  return true
}
