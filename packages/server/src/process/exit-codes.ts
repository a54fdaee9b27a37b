// Exit codes of the command `sluice`.

/** docs/reference/cli.md lists them. */
export const EXIT = {
  done: 0,
  failed: 1,
  invalid: 2,
  negative: 3,
  denied: 4,
  conflict: 5,
} as const

export const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  done: 'done',
  failed: 'failed: a server is unreachable or returned an error',
  invalid: 'invalid arguments, settings or rules',
  negative: 'negative result: refused, broken, unhealthy',
  denied: 'the token is missing, unknown or lacks the role',
  conflict: 'conflict: the rules have changed in the meantime, or their source is read-only',
}
