// Error for a setting that parses but cannot be used.

import { LimiterError } from 'sluice'

export function settingInvalid(flag: string, value: unknown, fix: string, cause?: unknown): LimiterError {
  const shown = value === undefined ? '' : ` (got ${JSON.stringify(value)})`
  return new LimiterError('OPTION_INVALID', `  --${flag}: ${fix}${shown}`, {
    fieldErrors: [{ field: `--${flag}`, value, fix }],
    cause,
  })
}
