// Opens overrides, bypass tokens, signals and the tools of an incident. They need a database; without one, only checks
// with bypass tokens are handled: every token is ignored.

import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { type Clock, type Limiter, type Signal, type Subject, wallClock } from 'sluice'
import type { ExceptionHooks } from '../checks/check-controller.ts'
import type { UnknownContent } from '../compatibility/unknown-content.ts'
import { CachedTable } from '../db/cached-table.ts'
import type { Database } from '../db/database.ts'
import { Retention } from '../db/retention.ts'
import type { BypassRegistry } from '../exceptions/bypass-registry.ts'
import { BYPASS_CHANNEL, bypassTable, readBypassTokens } from '../exceptions/bypass-table.ts'
import type { BypassToken } from '../exceptions/bypass-token.ts'
import { BypassUseWriter } from '../exceptions/bypass-uses.ts'
import { exceptionHooks } from '../exceptions/exception-hooks.ts'
import { GuessThrottle } from '../exceptions/guess-throttle.ts'
import { OverrideFeed } from '../exceptions/override-feed.ts'
import { deleteOldOverrides } from '../exceptions/override-rows.ts'
import { overrideTable } from '../exceptions/override-table.ts'
import { deleteOldSignals, readSignals, SIGNALS_CHANNEL, signalTable } from '../exceptions/signal-table.ts'
import type { ExceptionsDeps } from '../http/app.ts'
import { deleteOldFactors, factorOf, type ListedFactor, unknownFactors } from '../incident/factor-table.ts'
import { INCIDENT_CHANNEL, type IncidentState, incidentTable, readIncident } from '../incident/incident-table.ts'
import type { KeyHash, Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { Settings } from '../settings/settings.ts'
import type { Announce } from './open-alerts.ts'

export type OpenExceptions = ExceptionsDeps & {
  readonly hooks: ExceptionHooks
  /** Summary of freeze and factor; undefined if there is neither. */
  readonly describeIncident: () => string | undefined
  /** Writes the uses of bypass tokens to the database. */
  flushUses(): Promise<void>
  close(): Promise<void>
}

export type OpenExceptionsDeps = {
  readonly database: Database | undefined
  /** Location of the database. Copies on disk, for starts while it is unreachable, are stored per location. */
  readonly location: string
  readonly limiter: Limiter
  /** Verifies the tokens of the limiter. */
  readonly registry: BypassRegistry
  readonly unknown: UnknownContent
  readonly metrics: Metrics
  readonly log: Log
  readonly keyHash: KeyHash
  readonly announce: Announce
  /** Time between writes of the uses of bypass tokens. */
  readonly flushMs?: number | undefined
  readonly clock?: Clock | undefined
}

/** Rows are deleted this long after they ended. Nodes that were cut off for longer read all overrides again. */
const KEPT_MS = 3_600_000

export async function openExceptions(
  settings: Pick<Settings, 'dataDir'>,
  deps: OpenExceptionsDeps,
): Promise<OpenExceptions> {
  const { database, metrics, registry, clock = wallClock } = deps
  const nowMs = () => clock.nowUs() / 1000
  const guesses = new GuessThrottle(deps.clock)
  if (database === undefined) {
    const { applied, ...hooks } = exceptionHooks({
      ...{ registry, guesses, knowsTokens: () => false, onRefusedGuess: () => {} },
    })
    const none = { overrides: undefined, bypassTokens: undefined, signals: undefined, incident: undefined }
    return { ...none, hooks, describeIncident: () => undefined, flushUses: async () => {}, close: async () => {} }
  }
  const feeds = await openFeeds(settings, { ...deps, database }, nowMs)
  const now = () => new Date(nowMs())
  const { overrideFeed, bypassFeed, signalFeed, incidentFeed, state } = feeds
  const refreshing = (feed: { refresh(): Promise<void> }) => ({ database, now, refresh: () => feed.refresh() })
  const hooks = exceptionHooks({
    ...{ registry, guesses, knowsTokens: () => state.knowsTokens },
    onRefusedGuess: guessReporter(deps, guesses),
  })
  const writer = new BypassUseWriter({ database, registry, now, flushMs: deps.flushMs })
  const retention = keepExceptions(database, clock, deps.log)
  metrics.watchExceptions(() => ({
    overrides: overrideFeed.size,
    signals: state.signals.filter(({ expiresAtMs }) => expiresAtMs === null || expiresAtMs > nowMs()).length,
    bypassTokens: registry.valid,
    frozen: state.incident.freeze !== undefined,
    globalFactor: activeFactor(state.incident.factors, nowMs())?.factor ?? 1,
    applied: hooks.applied,
    bypassUses: registry.totals,
    bypassRejected: registry.rejected,
    guessesRefused: guesses.refused,
  }))
  return {
    overrides: overrideTable(refreshing(overrideFeed)),
    bypassTokens: bypassTable(refreshing(bypassFeed)),
    signals: signalTable(refreshing(signalFeed)),
    incident: incidentTable(refreshing(incidentFeed)),
    hooks,
    describeIncident: () => describe(state.incident, nowMs()),
    flushUses: () => writer.flush(),
    close: async () => {
      await writer.close()
      await retention.close()
      await Promise.all([overrideFeed.stop(), bypassFeed.stop(), signalFeed.stop(), incidentFeed.stop()])
    },
  }
}

/** Last read state of the database. */
type FeedState = { knowsTokens: boolean; signals: readonly Signal[]; incident: IncidentState }

async function openFeeds(
  settings: Pick<Settings, 'dataDir'>,
  deps: OpenExceptionsDeps & { readonly database: Database },
  nowMs: () => number,
) {
  const { database, location, limiter, registry, unknown, log } = deps
  const fingerprint = createHash('sha256').update(location).digest('hex').slice(0, 12)
  const copyPath = (name: string) =>
    database.kind === 'embedded' ? undefined : join(settings.dataDir, `${name}-${fingerprint}.json`)
  const state: FeedState = { knowsTokens: false, signals: [], incident: { freeze: undefined, factors: [] } }
  const overrideFeed = new OverrideFeed({ database, limiter, unknown, log, nowMs, copyPath: copyPath('overrides') })
  const shared = { database, log }
  const bypassFeed = new CachedTable<readonly BypassToken[]>({
    ...{ ...shared, channel: BYPASS_CHANNEL, table: 'bypass_tokens', copyPath: copyPath('bypass') },
    read: (queries) => readBypassTokens(queries, unknown),
    use: (tokens) => {
      registry.replace(tokens)
      state.knowsTokens = true
    },
  })
  const signalFeed = new CachedTable<readonly Signal[]>({
    ...{ ...shared, channel: SIGNALS_CHANNEL, table: 'signals', copyPath: copyPath('signals') },
    read: (queries) => readSignals(queries, unknown),
    use: (signals) => {
      limiter.setSignals(signals)
      state.signals = signals
    },
  })
  const incidentFeed = new CachedTable<IncidentState>({
    ...{ ...shared, channel: INCIDENT_CHANNEL, table: 'incident', copyPath: copyPath('incident') },
    read: async (queries) => {
      const items = await unknownFactors(queries, new Date(nowMs()))
      unknown.found('global factors', items, 'they do not apply; the limits of the rules do')
      return readIncident(queries, new Date(nowMs()))
    },
    use: (read) => useIncident(read, state, limiter, log, nowMs()),
  })
  for (const feed of [overrideFeed, bypassFeed, signalFeed, incidentFeed]) await feed.start()
  return { overrideFeed, bypassFeed, signalFeed, incidentFeed, state }
}

/** A copy on disk has times as texts. */
function useIncident(read: IncidentState, state: FeedState, limiter: Limiter, log: Log, nowMs: number): void {
  const factors = read.factors.map((factor) => ({ ...factor, expiresAt: new Date(factor.expiresAt) }))
  const before = describe(state.incident, nowMs)
  state.incident = { freeze: read.freeze, factors }
  limiter.setGlobalFactor(factorOf(factors))
  if (describe(state.incident, nowMs) === before) return
  const factor = activeFactor(factors, nowMs)
  log.event('incident_changed', { freeze: read.freeze ?? null, factor: factor?.factor ?? null })
}

function activeFactor(factors: readonly ListedFactor[], nowMs: number): ListedFactor | undefined {
  return factors.find(({ state, expiresAt }) => state === 'active' && expiresAt.getTime() > nowMs)
}

function describe({ freeze, factors }: IncidentState, nowMs: number): string | undefined {
  const factor = activeFactor(factors, nowMs)
  const texts = [
    freeze && `rule changes frozen since ${freeze.since}`,
    factor && `all limits × ${factor.factor} until ${factor.expiresAt.toISOString()}`,
  ].filter((text) => text !== undefined)
  return texts.length === 0 ? undefined : texts.join('; ')
}

/** Guesses between two log lines and webhooks. */
const GUESSES_PER_REPORT = 1000

function guessReporter({ log, keyHash, announce }: OpenExceptionsDeps, guesses: GuessThrottle) {
  return ({ ip, user, apiKey }: Subject) => {
    const { refused } = guesses
    if (refused % GUESSES_PER_REPORT !== 1) return
    const [fact, value] =
      ip !== undefined ? ['ip', ip] : user !== undefined ? ['user', user] : ['api_key', apiKey ?? '']
    const key_hash = keyHash(fact as string, value as string)
    log.event('bypass_guessing', { key_hash, refused })
    announce('bypass.guessing', { fact, key_hash, refused })
  }
}

function keepExceptions(database: Database, clock: Clock, log: Log): Retention {
  return new Retention({
    table: 'overrides and signals',
    keepMs: KEPT_MS,
    clock,
    log,
    deleteBatch: async (before) => {
      await deleteOldFactors(database, before)
      return (await deleteOldOverrides(database, before)) + (await deleteOldSignals(database, before))
    },
  })
}
