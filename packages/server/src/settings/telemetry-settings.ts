// Settings of telemetry: where traces and metrics are sent over OTLP, and how many requests are traced.

import { readInteger, type Setting } from './setting.ts'
import type { Settings } from './settings.ts'

const HEADERS_MAX = 32
const HEADER_NAME = /^[!#$%&'*+.^_`|~\w-]+$/
const HEADER_VALUE = /^[\x20-\x7e]*$/
/** Set by the exporter. */
const RESERVED_HEADERS: readonly string[] = ['content-type', 'content-length', 'content-encoding', 'host', 'connection']
const ENDPOINT_FIX = 'give the base URL of an OTLP/HTTP receiver, such as http://127.0.0.1:4318'

type TelemetrySetting = 'otlpEndpoint' | 'otlpHeaders' | 'otlpMetricsSeconds' | 'traceSample'

export const TELEMETRY_SETTINGS: { readonly [K in TelemetrySetting]: Setting<Settings[K]> } = {
  otlpEndpoint: {
    flag: 'otlp-endpoint',
    env: 'SLUICE_OTLP_ENDPOINT',
    value: '<url>',
    help: 'OTLP/HTTP receiver for traces and metrics; /v1/traces and /v1/metrics are appended to the URL.',
    fallback: () => undefined,
    shownFallback: 'no telemetry is sent',
    read: readEndpoint,
    fix: ENDPOINT_FIX,
    fixFor: (text) =>
      text.includes('@') ? 'remove the user and password: give credentials in --otlp-headers' : undefined,
  },
  otlpHeaders: {
    flag: 'otlp-headers',
    env: 'SLUICE_OTLP_HEADERS',
    value: '<name>=<value>',
    help:
      'Header of every request to the receiver, such as an API key. ' +
      'Repeat the flag for several, or separate them by commas. Values are percent-decoded.',
    fallback: () => undefined,
    shownFallback: '',
    read: readHeaders,
    fix:
      `give up to ${HEADERS_MAX} headers as name=value, each name once; write a space as %20 and a comma as %2C, ` +
      'such as authorization=Bearer%20…',
    needs: 'otlpEndpoint',
    secret: true,
    repeats: true,
  },
  otlpMetricsSeconds: {
    flag: 'otlp-metrics-seconds',
    env: 'SLUICE_OTLP_METRICS_SECONDS',
    value: '<seconds>',
    help: 'Interval between two exports of all metrics over OTLP; 0 exports traces only.',
    fallback: () => 60,
    shownFallback: '60',
    read: (text) => readInteger(text, 0, 3600),
    fix: 'give seconds from 0 to 3600',
    needs: 'otlpEndpoint',
  },
  traceSample: {
    flag: 'trace-sample',
    env: 'SLUICE_TRACE_SAMPLE',
    value: '<share>',
    help: 'Share of requests that are traced, from 0 to 1. A traceparent of the caller decides for its own request.',
    fallback: () => 0.01,
    shownFallback: '0.01',
    read: readShare,
    fix: 'give a number from 0 to 1, such as 0.01',
    needs: 'otlpEndpoint',
  },
}

/** Returns the URL without a trailing slash. */
function readEndpoint(text: string): string | undefined {
  if (!URL.canParse(text) || /[?#@\s]/.test(text)) return undefined
  const { protocol, href } = new URL(text)
  return protocol === 'http:' || protocol === 'https:' ? href.replace(/\/+$/, '') : undefined
}

function readHeaders(text: string): Readonly<Record<string, string>> | undefined {
  const headers = new Map<string, string>()
  for (const pair of text.trim().split(/[\s,]+/)) {
    const [, name = '', encoded = ''] = /^([^=]+)=(.*)$/.exec(pair) ?? []
    const value = decoded(encoded)
    const known = name.toLowerCase()
    if (!HEADER_NAME.test(name) || RESERVED_HEADERS.includes(known) || headers.has(known)) return undefined
    if (value === undefined || !HEADER_VALUE.test(value)) return undefined
    headers.set(known, value)
  }
  return headers.size <= HEADERS_MAX ? Object.fromEntries(headers) : undefined
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

function readShare(text: string): number | undefined {
  const share = /^\d(\.\d{1,9})?$/.test(text) ? Number(text) : Number.NaN
  return share >= 0 && share <= 1 ? share : undefined
}
