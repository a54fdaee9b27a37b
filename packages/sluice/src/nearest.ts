// Suggests the known name for an unknown one: a synonym used elsewhere in Sluice, or a name at most two edits away.

const EDITS_MAX = 2

/** Names of one fact in the library, the HTTP API, rules and other limiters. */
const SYNONYMS: readonly (readonly string[])[] = [
  ['user', 'client_id', 'clientId', 'client', 'user_id', 'userId', 'key'],
  ['ip', 'ip_address', 'ipAddress', 'address'],
  ['path', 'endpoint', 'endpoint_pattern', 'url', 'uri'],
  ['apiKey', 'api_key'],
  ['tenant', 'tenant_id', 'tenantId'],
  ['method', 'http_method', 'verb'],
]

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

/** The known name of the same fact: `client_id` for `user` in the HTTP API, and the reverse in the library. */
export function synonym(name: string, known: readonly string[]): string | undefined {
  return SYNONYMS.find((names) => names.includes(name))?.find((other) => known.includes(other))
}

/** `; did you mean "limit"?`, or an empty string. */
export function suggestion(name: string, known: readonly string[]): string {
  const meant = synonym(name, known) ?? nearest(name, known)
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
