// Settings of the rate limit headers, shared by the gateway, forward auth and the `detail` of checks.

import { HEADER_STYLES, type HeaderOptions, type HeaderStyle } from 'sluice/http'
import type { Setting } from './setting.ts'

export type HeaderSettings = {
  readonly headerStyle: NonNullable<HeaderOptions['style']>
  readonly retryAfterJitterSeconds: number
}

const JITTER_SECONDS_MAX = 3600

export const HEADER_SETTINGS: { readonly [K in keyof HeaderSettings]: Setting<HeaderSettings[K]> } = {
  headerStyle: {
    flag: 'header-style',
    env: 'SLUICE_HEADER_STYLE',
    value: '<styles>',
    help:
      `Rate limit headers of the gateway, forward auth and detail: ${HEADER_STYLES.join(', ')}, ` +
      'comma-separated, or none. Retry-After is always sent.',
    fallback: () => ['legacy', 'draft-11'],
    shownFallback: 'legacy,draft-11',
    read: readStyles,
    fix: `use none, or one or several of ${HEADER_STYLES.join(', ')} separated by commas`,
  },
  retryAfterJitterSeconds: {
    flag: 'retry-after-jitter-seconds',
    env: 'SLUICE_RETRY_AFTER_JITTER_SECONDS',
    value: '<seconds>',
    help: 'Adds a random 0 to n seconds to Retry-After and retry_after, so that clients do not retry together.',
    fallback: () => 0,
    shownFallback: '0',
    read: (text) => (/^\d{1,4}$/.test(text) && Number(text) <= JITTER_SECONDS_MAX ? Number(text) : undefined),
    fix: `give a whole number of seconds from 0 to ${JITTER_SECONDS_MAX}`,
  },
}

export function headerOptions({ headerStyle: style, retryAfterJitterSeconds }: HeaderSettings): HeaderOptions {
  return { style, retryAfterJitterSeconds }
}

function readStyles(text: string): HeaderSettings['headerStyle'] | undefined {
  if (text.trim() === 'none') return 'none'
  const styles = text.split(',').map((name) => HEADER_STYLES.find((style) => style === name.trim()))
  const known = styles.filter((style): style is HeaderStyle => style !== undefined)
  return known.length === styles.length ? known : undefined
}
