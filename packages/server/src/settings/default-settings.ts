// Default settings, for programs that embed the service.

import { SETTINGS, type Settings } from './settings.ts'

export function defaultSettings(): Settings {
  const values = Object.entries(SETTINGS).map(([name, { fallback }]) => [name, fallback()] as const)
  // One value per entry of the table, of the type that its `fallback` returns.
  return Object.fromEntries(values) as unknown as Settings
}
