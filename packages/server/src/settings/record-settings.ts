// Settings of what is kept about requests, and for how long: a part of the table in settings.ts.

import { durationSeconds } from '../text/duration.ts'
import type { Setting, Settings } from './settings.ts'

const RETENTION_SECONDS_MAX = 3650 * 86_400
const NO_SECRET = 'give --key-secret, the same on every node: hashes of a random secret cannot be found after a restart'

type RecordSetting = 'violationsRetentionMs' | 'violationsKeys'

export const RECORD_SETTINGS: { readonly [K in RecordSetting]: Setting<Settings[K]> } = {
  violationsRetentionMs: {
    flag: 'violations-retention',
    env: 'SLUICE_VIOLATIONS_RETENTION',
    value: '<duration>',
    help: 'How long violations stay in the database; older ones are deleted. 0: none is written, and all are deleted.',
    fallback: () => 30 * 86_400_000,
    shownFallback: '30d',
    read: readRetention,
    fix: 'give a whole number and a unit, m, h or d, such as 30d: up to 3650d; or 0',
    excludes: 'rules',
  },
  violationsKeys: {
    flag: 'violations-keys',
    env: 'SLUICE_VIOLATIONS_KEYS',
    value: 'clear|hmac',
    help: 'How violations name users, addresses and buckets: in clear, or by the HMAC-SHA-256 of --key-secret.',
    fallback: () => 'clear',
    shownFallback: 'clear',
    read: (text) => (text === 'clear' || text === 'hmac' ? text : undefined),
    fix: 'use clear or hmac',
    excludes: 'rules',
    clash: ({ violationsKeys, keySecret }) =>
      violationsKeys === 'hmac' && keySecret === undefined ? NO_SECRET : undefined,
  },
}

function readRetention(text: string): number | undefined {
  const seconds = text === '0' ? 0 : durationSeconds(text)
  return seconds === undefined || seconds > RETENTION_SECONDS_MAX ? undefined : seconds * 1000
}
