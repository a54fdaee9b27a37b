// The settings of a node that was given none: what a program that embeds the service starts from.

import { SETTINGS, type Settings } from './settings.ts'

export function defaultSettings(): Settings {
  const values = Object.entries(SETTINGS).map(([name, { fallback }]) => [name, fallback()] as const)
  // One value per entry of the table, each of the type that its own `fallback` returns.
  return Object.fromEntries(values) as unknown as Settings
}
