// Suggests the known name that a mistyped one stands for: at most two edits away, or none.

const EDITS_MAX = 2

export function nearest(name: string, known: readonly string[]): string | undefined {
  let best: string | undefined
  let bestEdits = EDITS_MAX + 1
  for (const candidate of known) {
    if (Math.abs(candidate.length - name.length) > EDITS_MAX) continue
    const edits = editDistance(name, candidate)
    if (edits < bestEdits) {
      best = candidate
      bestEdits = edits
    }
  }
  return best
}

/** `; did you mean "limit"?`, or an empty text. */
export function suggestion(name: string, known: readonly string[]): string {
  const meant = nearest(name, known)
  return meant === undefined ? '' : `; did you mean "${meant}"?`
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const substitution = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(substitution, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[b.length] ?? 0
}
