// Reads events back from ClickHouse. Numbers of 64 bits arrive as strings or numbers, depending on the version.

import type { DecisionEvent } from '../event.ts'
import { EVENT_COLUMNS } from './schema.ts'

export type StoredEvent = Readonly<Record<string, string | number | null>>

export function eventColumns(): string {
  return ['timestamp_ms', 'allowed', ...EVENT_COLUMNS.map(([name]) => name)].join(', ')
}

export function readEvent({ timestamp_ms, allowed, ...row }: StoredEvent): DecisionEvent {
  const fields = EVENT_COLUMNS.map(([name, type]) => {
    const value = row[name] ?? null
    return [name, value === null || type.endsWith('String)') || type === 'String' ? value : Number(value)]
  })
  const event = { timestamp: Number(timestamp_ms), allowed: Number(allowed) === 1, ...Object.fromEntries(fields) }
  return event as DecisionEvent // the columns are its fields
}
