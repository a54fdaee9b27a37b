// Keeps secrets out of messages about arguments and settings.

/** The text, or undefined where it may hold a password: a secret setting, or a URL with one, also without a scheme. */
export function printable(text: string, secret: boolean | undefined): string | undefined {
  return secret || /:.*@/s.test(text) ? undefined : text
}
