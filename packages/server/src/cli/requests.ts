// Flags that every command has.

/** Whether a flag is given. Also true if other arguments are invalid, but not after `--`. */
export function requests(args: readonly string[], ...flags: readonly string[]): boolean {
  const end = args.indexOf('--')
  return args.slice(0, end < 0 ? undefined : end).some((arg) => flags.includes(arg))
}
