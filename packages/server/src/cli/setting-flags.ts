// Settings of the service as flags, for help and completion. settings/command-line.ts parses them.

import type { Setting } from '../settings/setting.ts'
import { SETTINGS } from '../settings/settings.ts'
import type { Flag } from './command.ts'

export const SETTING_FLAGS: readonly Flag[] = flagsOf(SETTINGS)

export function flagsOf(table: Readonly<Record<string, Setting<unknown, string>>>): readonly Flag[] {
  return Object.values(table).map(flagOf)
}

function flagOf(setting: Setting<unknown, string>): Flag {
  const { flag, env, value, help, shownFallback, secret, repeats, read, fix } = setting
  return {
    name: flag,
    env,
    value,
    help,
    accepts: (text) => read(text) !== undefined,
    fix,
    ...(shownFallback === '' ? {} : { shownFallback }),
    ...(value.startsWith('<file>') ? { isFile: true } : {}),
    ...(secret ? { secret } : {}),
    ...(repeats ? { repeats } : {}),
  }
}
