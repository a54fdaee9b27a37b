// Keeps secrets out of messages about arguments and settings.

/** Returns undefined if the text may contain a password: a secret setting, or a URL with credentials. */
export function printable(text: string, secret: boolean | undefined): string | undefined {
  return secret || /:.*@/s.test(text) ? undefined : text
}
