// Opens the event pipeline of a node: its sinks, the analytics over them, and the retention of the database.

import { resolve } from 'node:path'
import { type Clock, type Limiter, type Store, systemClock, wallClock } from 'sluice'
import { createEndpointPattern } from '../checks/endpoint-pattern.ts'
import { KnownKeys } from '../checks/known-keys.ts'
import type { Database } from '../db/database.ts'
import { Retention } from '../db/retention.ts'
import type { Analytics } from '../events/analytics.ts'
import { cachedHash, SamplePosition } from '../events/client-key.ts'
import { embeddedAnalytics } from '../events/embedded/embedded-analytics.ts'
import { embeddedSink } from '../events/embedded/embedded-sink.ts'
import { deleteOldEvents, deleteOldProducers, reclaimEvents } from '../events/embedded/event-retention.ts'
import { hashingAnalytics } from '../events/hashing-analytics.ts'
import { type CompareSecret, compareIn, readKeySecret, SecretComparison } from '../events/key-secret.ts'
import { type CountsFile, EventPipeline } from '../events/pipeline.ts'
import { keptAttributes } from '../events/rule-attributes.ts'
import { createSampleRate } from '../events/sample-rate.ts'
import { type FindViolations, findViolations } from '../events/violations.ts'
import { type KeyHash, keyHash, type Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { Settings } from '../settings/settings.ts'
import type { SharedValues } from '../store/shared-values.ts'
import { nodeName } from '../worker-number.ts'
import { keyMode, openSinks, type SinkSettings } from './open-sinks.ts'

export type OpenEvents = {
  /** Undefined if no sink is configured. */
  readonly pipeline: EventPipeline | undefined
  /** Undefined if no sink can be queried. */
  readonly analytics: Analytics | undefined
  readonly findViolations: FindViolations | undefined
  readonly keyHash: KeyHash
  /** Undefined if no sink is configured. */
  readonly knownKeys: KnownKeys | undefined
  /** Age of the oldest event of this node that waits to be stored where analytics read. */
  lagMs(): number
  degradedReason(): string | undefined
  /** Gives up events that are not stored after `ms`. */
  close(ms?: number): Promise<void>
}

export type EventsSettings = Pick<Settings, 'dataDir' | 'keySecret' | 'region' | 'eventsSample'> & SinkSettings

export type EventsDeps = {
  readonly database: Database | undefined
  readonly limiter: Limiter
  readonly store: Store | undefined
  /** Undefined: the buckets are in this process. */
  readonly sharedValues?: SharedValues | undefined
  readonly metrics: Metrics
  readonly log: Log
  /** Outlives a worker. */
  readonly countsFile?: CountsFile | undefined
  readonly clock?: Clock | undefined
}

const FOREIGN_SECRET = 'events: --key-secret differs from that of other nodes, so their hashed keys do not match'
const TRIM_MS = 60_000

export async function openEvents(settings: EventsSettings, deps: EventsDeps): Promise<OpenEvents> {
  const { eventsSinks = [], eventsRetentionMs: keepMs } = settings
  const { database, limiter, metrics, log, clock = wallClock } = deps
  const isEmbedded = database !== undefined && keepMs > 0 && !eventsSinks.some(({ kind }) => kind === 'embedded')
  const isUnused = database === undefined && eventsSinks.length === 0 && settings.eventsQuery === undefined
  if (isUnused) return noEvents(settings.keySecret)
  const secret = readKeySecret(settings.keySecret, resolve(settings.dataDir))
  const knownKeys = new KnownKeys(keyHash(secret), secret, deps.sharedValues)
  const hash = cachedHash(keyHash(secret), (fact, value) => knownKeys.remember(fact, value))
  const opened = await openSinks(settings, log)
  const keys = keyMode(settings, 'embedded')
  const sinks = [...(isEmbedded ? [{ sink: embeddedSink(database.background), keys }] : []), ...opened.sinks]
  const nowMs = () => clock.nowUs() / 1000
  const pipeline =
    sinks.length === 0
      ? undefined
      : new EventPipeline(
          {
            nowMs,
            log,
            keyHash: hash,
            steadyUs: () => (deps.clock ?? systemClock).nowUs(),
            lastStoreUs: () => deps.store?.lastUs?.(),
            attributesOf: keptAttributes(limiter, hash),
            endpointOf: createEndpointPattern(limiter),
            sampleRate: createSampleRate(settings.eventsSample),
            position: new SamplePosition(secret),
            node: nodeName(),
            region: settings.region,
          },
          sinks,
          deps.countsFile,
        )
  if (pipeline !== undefined) metrics.watchEvents(pipeline)
  const retention = database === undefined ? undefined : keepEvents(database, keepMs, clock, log)
  const secrets = compareSecrets(secret, sinks.length > 0 ? database : undefined, opened.compareSecret)
  await secrets.ofDatabase?.settled()
  const own = isEmbedded ? { analytics: embeddedAnalytics(database.background), keys } : undefined
  const queried = opened.analytics ?? own
  const source = settings.eventsQuery === undefined ? queried?.analytics.name : 'kafka'
  return {
    pipeline,
    analytics: queried && hashingAnalytics(queried.analytics, queried.keys, hash),
    findViolations: retention && findSince(database as Database, retention, hash), // there is one with a retention
    keyHash: hash,
    knownKeys,
    lagMs: () => (pipeline?.totals().sinks.find(({ name }) => name === source)?.lagSeconds ?? 0) * 1000,
    degradedReason: () => (isForeign(secrets) ? FOREIGN_SECRET : pipeline?.degradedReason()),
    close: async (ms) => {
      await pipeline?.close(ms)
      await opened.close()
      await retention?.close()
    },
  }
}

function noEvents(secret: string | undefined): OpenEvents {
  return {
    pipeline: undefined,
    analytics: undefined,
    findViolations: undefined,
    keyHash: keyHash(secret),
    knownKeys: undefined,
    lagMs: () => 0,
    degradedReason: () => undefined,
    close: async () => {},
  }
}

type Comparisons = {
  readonly ofDatabase: SecretComparison | undefined
  readonly ofClickHouse: SecretComparison | undefined
}

/** Also if no sink hashes keys: API keys are always hashed, and nodes must sample the same clients. */
function compareSecrets(secret: string, database: Database | undefined, inClickHouse?: CompareSecret): Comparisons {
  const comparisons = {
    ofDatabase: database && new SecretComparison(compareIn(database), secret),
    ofClickHouse: inClickHouse && new SecretComparison(inClickHouse, secret),
  }
  void comparisons.ofClickHouse?.settled() // a start does not wait for ClickHouse
  return comparisons
}

function isForeign({ ofDatabase, ofClickHouse }: Comparisons): boolean {
  return [ofDatabase, ofClickHouse].some((comparison) => comparison?.isForeign)
}

function keepEvents(database: Database, keepMs: number, clock: Clock, log: Log): Retention {
  return new Retention({
    table: 'events',
    keepMs,
    clock,
    log,
    intervalMsMax: TRIM_MS, // the caps on rows matter more often than their age
    deleteBatch: async (before) => {
      await deleteOldProducers(database.background, clock.nowUs() / 1000)
      return deleteOldEvents(database.background, before)
    },
    // The embedded database has no autovacuum.
    reclaim: database.kind === 'embedded' ? () => reclaimEvents(database.background) : undefined,
  })
}

/** Violations past their retention are not found, even if they still exist. */
function findSince(database: Database, retention: Retention, hash: KeyHash): FindViolations {
  return (query) => {
    const since = new Date(Math.max(retention.oldest.getTime(), query.since?.getTime() ?? 0))
    return findViolations(database.background, { ...query, since }, hash)
  }
}
