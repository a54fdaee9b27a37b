// Why something failed, in words for people.

/** A cause says more than "fetch failed" does, and some errors of Node have nothing but a code. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const told: NodeJS.ErrnoException = error.cause instanceof Error ? error.cause : error
  return told.message || (told.code ?? told.name)
}
