// Reason for a failure, for people.

/** Prefers the cause, which says more than "fetch failed". Some errors of Node.js have only a code. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const source: NodeJS.ErrnoException = error.cause instanceof Error ? error.cause : error
  return source.message || (source.code ?? source.name)
}
