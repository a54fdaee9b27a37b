// Merge patches of rules (RFC 7396): null removes a field.

const DEPTH_MAX = 10

/** Keeps values that are nested deeper than any rule: the parser rejects them. */
export function mergePatch(present: unknown, patch: unknown, depth = 0): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch) || depth > DEPTH_MAX) return patch
  const base = typeof present === 'object' && present !== null && !Array.isArray(present) ? present : {}
  const fields = new Map<string, unknown>(Object.entries(base))
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) fields.delete(name)
    else fields.set(name, mergePatch(fields.get(name), value, depth + 1))
  }
  return Object.fromEntries(fields)
}
