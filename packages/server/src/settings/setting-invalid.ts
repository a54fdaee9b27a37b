// A setting that is well written, and wrong all the same: told like every other mistake, with its value and the fix.

import { LimiterError } from 'sluice'

export function settingInvalid(flag: string, value: unknown, fix: string, cause?: unknown): LimiterError {
  const shown = value === undefined ? '' : ` (got ${JSON.stringify(value)})`
  return new LimiterError('OPTION_INVALID', `  --${flag}: ${fix}${shown}`, {
    faults: [{ field: `--${flag}`, value, fix }],
    cause,
  })
}
