// Settings of decision events: where they go, which share of them, and how they identify clients.

import { durationSeconds } from '../text/duration.ts'
import { CLICKHOUSE_URL_FIX, readClickHouseUrl } from './clickhouse-url.ts'
import { parseKafkaAddress } from './kafka-address.ts'
import type { Setting } from './setting.ts'
import type { Settings } from './settings.ts'

const RETENTION_SECONDS_MAX = 3650 * 86_400
export const SINK_KINDS = ['embedded', 'clickhouse', 'kafka', 'jsonl'] as const
const SINKS_FIX =
  'give clickhouse=http://host:8123, kafka=host:9092, jsonl=<file>, jsonl=- or embedded=off, each at most once'
export type SinkKind = (typeof SINK_KINDS)[number]

/** `target`: URL of ClickHouse, brokers of Kafka, path of a file, or `off` for the embedded sink. */
export type SinkSetting = { readonly kind: SinkKind; readonly target: string }
export type KeyModes = Readonly<Partial<Record<SinkKind, 'clear' | 'hmac'>>>

export type EventSettings = {
  readonly eventsSinks: readonly SinkSetting[] | undefined
  /** Undefined: by load. */
  readonly eventsSample: number | undefined
  readonly eventsKeys: KeyModes | undefined
  /** ClickHouse that answers analytics without being a sink of this node. */
  readonly eventsQuery: string | undefined
  /** 0: the embedded sink stores nothing. */
  readonly eventsRetentionMs: number
}

export const EVENT_SETTINGS: { readonly [K in keyof EventSettings]: Setting<Settings[K]> } = {
  eventsSinks: {
    flag: 'events-sink',
    env: 'SLUICE_EVENTS_SINKS',
    value: '<sink>=<target>',
    help:
      'Where decision events go besides the database: clickhouse=http://host:8123/database, kafka=host:9092/topic, ' +
      'jsonl=<file> or jsonl=- (stdout). embedded=off stops writing them to the database. ' +
      'Repeat the flag for several; in the variable, separate them by spaces.',
    fallback: () => undefined,
    shownFallback: 'the database, if the rules are in one',
    read: readSinks,
    fix: SINKS_FIX,
    fixFor: sinkFix,
    repeats: true,
    secret: true,
  },
  eventsQuery: {
    flag: 'events-query',
    env: 'SLUICE_EVENTS_QUERY',
    value: '<url>',
    help: 'ClickHouse that answers analytics, if events reach it through Kafka. Default: the sink clickhouse, if any.',
    fallback: () => undefined,
    shownFallback: '',
    read: (text) => (readClickHouseUrl(text) === undefined ? undefined : text),
    fix: CLICKHOUSE_URL_FIX,
    secret: true,
    conflict: ({ eventsSinks }) =>
      eventsSinks?.some(({ kind }) => kind === 'clickhouse') ? 'remove it: the sink clickhouse answers' : undefined,
  },
  eventsSample: {
    flag: 'events-sample',
    env: 'SLUICE_EVENTS_SAMPLE',
    value: '<share>',
    help:
      'Share of clients whose admissions become events, from 0 to 1. Refusals are always recorded, and totals count ' +
      'every decision.',
    fallback: () => undefined,
    shownFallback: '1, or 0.01 while a process makes more than 500 decisions a second',
    read: (text) => (/^(0|1|0?\.\d{1,9}|1\.0+)$/.test(text) ? Number(text) : undefined),
    fix: 'give a number from 0 to 1, such as 0.05, or leave it out',
  },
  eventsKeys: {
    flag: 'events-keys',
    env: 'SLUICE_EVENTS_KEYS',
    value: '[<sink>=]clear|hmac',
    help:
      'How events identify users, addresses, tenants and buckets: in plain text, or by HMAC-SHA-256 with ' +
      '--key-secret, for all sinks or for one. API keys are always hashed. Repeat the flag for several sinks.',
    fallback: () => undefined,
    shownFallback: 'embedded=clear, others hmac',
    read: readKeyModes,
    fix: 'use clear, hmac, or one of them for a sink, such as clickhouse=clear',
    repeats: true,
  },
  eventsRetentionMs: {
    flag: 'events-retention',
    env: 'SLUICE_EVENTS_RETENTION',
    value: '<duration>',
    help: 'How long refusals and totals are kept. In the database, 0 disables recording and deletes all events.',
    fallback: () => 30 * 86_400_000,
    shownFallback: '30d',
    read: readRetention,
    fix: 'give a whole number and a unit, m, h or d, such as 30d: up to 3650d; or 0',
  },
}

function readSinks(text: string): readonly SinkSetting[] | undefined {
  const sinks = new Map<SinkKind, SinkSetting>()
  for (const one of text.trim().split(/\s+/)) {
    const [, name = '', target = ''] = /^([a-z]+)=(\S+)$/.exec(one) ?? []
    const kind = SINK_KINDS.find((known) => known === name)
    if (kind === undefined || sinks.has(kind) || !isTarget(kind, target)) return undefined
    sinks.set(kind, { kind, target })
  }
  return [...sinks.values()]
}

function isTarget(kind: SinkKind, target: string): boolean {
  if (kind === 'embedded') return target === 'off'
  if (kind === 'clickhouse') return readClickHouseUrl(target) !== undefined
  return kind === 'jsonl' ? target !== '' : kafkaFix(target) === undefined
}

/** More specific fix for the first wrong sink; contains no target, which can have a password. */
function sinkFix(text: string): string | undefined {
  const seen = new Set<string>()
  for (const one of text.trim().split(/\s+/)) {
    const [, kind = '', target = ''] = /^([a-z]+)=(\S*)$/.exec(one) ?? []
    if (kind === '') return undefined
    if (!SINK_KINDS.some((known) => known === kind)) return `unknown sink "${kind}"; ${SINKS_FIX}`
    if (seen.has(kind)) return `${kind} is given twice; give each sink at most once`
    seen.add(kind)
    if (kind === 'clickhouse' && readClickHouseUrl(target) === undefined) return `clickhouse: ${CLICKHOUSE_URL_FIX}`
    const fix = kind === 'kafka' ? kafkaFix(target) : undefined
    if (fix !== undefined) return `kafka: ${fix}`
  }
  return undefined
}

function kafkaFix(target: string): string | undefined {
  try {
    parseKafkaAddress(target)
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

function readKeyModes(text: string): KeyModes | undefined {
  const modes: Partial<Record<SinkKind, 'clear' | 'hmac'>> = {}
  for (const one of text.trim().split(/\s+/)) {
    const [, name, mode] = /^(?:([a-z]+)=)?(clear|hmac)$/.exec(one) ?? []
    const kinds = name === undefined ? SINK_KINDS : SINK_KINDS.filter((kind) => kind === name)
    if (kinds.length === 0 || mode === undefined) return undefined
    for (const kind of kinds) modes[kind] = mode as 'clear' | 'hmac'
  }
  return modes
}

function readRetention(text: string): number | undefined {
  const seconds = text === '0' ? 0 : durationSeconds(text)
  return seconds === undefined || seconds > RETENTION_SECONDS_MAX ? undefined : seconds * 1000
}
