// Opens the sinks that --events-sink names, and the analytics that read the stored events.

import type { Analytics } from '../events/analytics.ts'
import type { CompareSecret } from '../events/key-secret.ts'
import type { KeyMode, SinkWithKeys } from '../events/pipeline.ts'
import type { Log } from '../log.ts'
import { readClickHouseUrl } from '../settings/clickhouse-url.ts'
import type { SinkKind, SinkSetting } from '../settings/event-settings.ts'
import { parseKafkaAddress } from '../settings/kafka-address.ts'
import type { Settings } from '../settings/settings.ts'

export type SinkSettings = Pick<Settings, 'eventsSinks' | 'eventsKeys' | 'eventsQuery' | 'eventsRetentionMs'>

export type OpenSinks = {
  readonly sinks: readonly SinkWithKeys[]
  /** Undefined: no ClickHouse is configured. */
  readonly analytics: { readonly analytics: Analytics; readonly keys: KeyMode } | undefined
  /** Compares the key secret with that of other nodes on ClickHouse. Undefined: as above. */
  readonly compareSecret: CompareSecret | undefined
  /** Closes clients that the sinks do not close themselves. */
  close(): Promise<void>
}

const FILE = { maxBytes: 100 * 1024 * 1024, files: 5 } as const

/** Loads only the clients in use. */
export async function openSinks(settings: SinkSettings, log: Log): Promise<OpenSinks> {
  const { eventsSinks = [], eventsQuery } = settings
  const sinks: SinkWithKeys[] = []
  const closers: (() => Promise<void>)[] = []
  let analytics: OpenSinks['analytics']
  let compareSecret: OpenSinks['compareSecret']
  for (const { kind, target } of eventsSinks) {
    const keys = keyMode(settings, kind)
    if (kind === 'kafka') sinks.push({ keys, sink: await openKafkaSink(target) })
    if (kind === 'jsonl') sinks.push({ keys, sink: await openFileSink(target) })
    if (kind !== 'clickhouse') continue
    const opened = await openClickHouse(target, settings.eventsRetentionMs, log)
    sinks.push({ keys, sink: opened.sink })
    closers.push(opened.stopRetention)
    analytics = { analytics: opened.analytics, keys }
    compareSecret = opened.compareSecret
  }
  if (eventsQuery !== undefined) {
    const opened = await openClickHouse(eventsQuery, 0, log)
    closers.push(() => opened.sink.close())
    analytics = { analytics: opened.analytics, keys: keyMode(settings, 'kafka') }
    compareSecret = opened.compareSecret
  }
  return {
    sinks,
    analytics,
    compareSecret,
    close: async () => void (await Promise.all(closers.map((close) => close()))),
  }
}

/** Default: plain text in the node's own database, hashes everywhere else. */
export function keyMode({ eventsKeys }: Pick<SinkSettings, 'eventsKeys'>, kind: SinkKind): KeyMode {
  return eventsKeys?.[kind] ?? (kind === 'embedded' ? 'clear' : 'hmac')
}

async function openKafkaSink(target: SinkSetting['target']): Promise<SinkWithKeys['sink']> {
  const { KafkaSink } = await import('../events/kafka/kafka-sink.ts')
  return new KafkaSink(parseKafkaAddress(target))
}

async function openFileSink(path: string): Promise<SinkWithKeys['sink']> {
  const { openJsonlSink } = await import('../events/jsonl-sink.ts')
  return openJsonlSink({ path, ...FILE })
}

/** `retentionMs` 0: partitions are not dropped. */
async function openClickHouse(target: string, retentionMs: number, log: Log) {
  const url = readClickHouseUrl(target)
  if (url === undefined) throw new Error('the URL of ClickHouse is invalid') // the settings were checked
  const [{ ClickHouseClient }, { ClickHouseSchema }, { ClickHouseSink }, { ClickHouseAnalytics }] = await Promise.all([
    import('../events/clickhouse/client.ts'),
    import('../events/clickhouse/schema.ts'),
    import('../events/clickhouse/clickhouse-sink.ts'),
    import('../events/clickhouse/clickhouse-analytics.ts'),
  ])
  const [{ retentionOf }, { compareInClickHouse }] = await Promise.all([
    import('../events/clickhouse/retention.ts'),
    import('../events/clickhouse/key-fingerprint.ts'),
  ])
  const client = new ClickHouseClient(url)
  const schema = new ClickHouseSchema(client)
  const retention = retentionOf(client, schema, retentionMs, log)
  return {
    sink: new ClickHouseSink(client, schema),
    analytics: new ClickHouseAnalytics(client, schema),
    compareSecret: compareInClickHouse(client, schema),
    stopRetention: async () => retention?.close(),
  }
}
