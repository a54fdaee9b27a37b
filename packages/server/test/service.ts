// A real service on a free port for one test: nothing is mocked but, where a test asks for it, the clock.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createLimiter, memoryStore, type RulesInput, type Store } from 'sluice'
import { type FakeClock, fakeClock } from 'sluice/testing'
import { onTestFinished } from 'vitest'
import type { Token } from '../src/access/token.ts'
import { createCheckController } from '../src/checks/check-controller.ts'
import { DecisionHistory } from '../src/checks/decision-history.ts'
import { UnknownContent } from '../src/compatibility/unknown-content.ts'
import type { Database } from '../src/db/database.ts'
import { BypassRegistry } from '../src/exceptions/bypass-registry.ts'
import { type AppDeps, createApp } from '../src/http/app.ts'
import { createLog, keyHash, type Log } from '../src/log.ts'
import { Metrics } from '../src/metrics/metrics.ts'
import { databaseSource } from '../src/rules/database-source.ts'
import { LiveRules } from '../src/rules/live-rules.ts'
import type { RuleSource } from '../src/rules/rule-source.ts'
import { RuleStore } from '../src/rules/rule-store.ts'
import { type AdminState, openAdminState } from '../src/service/admin-state.ts'
import { openDashboard } from '../src/service/open-dashboard.ts'
import { type EventsSettings, type OpenEvents, openEvents } from '../src/service/open-events.ts'
import { openExceptions } from '../src/service/open-exceptions.ts'
import { openFleet } from '../src/service/open-fleet.ts'
import { openReceipts } from '../src/service/open-receipts.ts'
import { openRollouts } from '../src/service/open-rollouts.ts'
import { startServer } from '../src/service/server.ts'
import type { ClientSettings } from '../src/settings/client-settings.ts'
import { SETTINGS, type Settings } from '../src/settings/settings.ts'
import { StorePressure } from '../src/store/store-pressure.ts'
import { singleWorker } from '../src/workers/node-workers.ts'
import { sharedDataDir, temporaryFolder } from './databases.ts'

export const CHECK = '/api/v1/rate-limit/check'
export const BATCH = '/api/v1/rate-limit/check/batch'
export const REFUND = '/api/v1/rate-limit/refund'
export const RULES = '/api/v1/rate-limit/rules'
export const RULE_SET = '/api/v1/rate-limit/rule-set'
export const ADMIN_TOKEN = 'token-of-the-admins'

/** The rule printed in the source document, as it stands there. */
export const MESSAGES_RULE = {
  rule_id: 'messages_per_min',
  endpoint_pattern: '/api/v1/messages',
  method: 'POST',
  limit: 100,
  window_seconds: 60,
  algorithm: 'sliding_window',
  scope: 'per_user',
  priority: 1,
}

/** The request printed there. */
export const MESSAGES_REQUEST = {
  client_id: 'user_12345',
  endpoint: '/api/v1/messages',
  method: 'POST',
  ip_address: '203.0.113.42',
}

export type Answer = { readonly status: number; readonly headers: Headers; readonly body: Record<string, unknown> }

export type Client = {
  readonly address: string
  readonly logged: readonly Record<string, unknown>[]
  /** With a token, if one is given. */
  get(path: string, token?: string): Promise<Answer>
  post(path: string, body: unknown, token?: string): Promise<Answer>
  send(path: string, init: RequestInit): Promise<Answer>
  check(body: unknown): Promise<Record<string, unknown>>
}

export type App = Client & {
  readonly clock: FakeClock
  readonly metrics: Metrics
  readonly lifecycle: { draining: boolean }
  readonly admin: AdminState
  readonly events: OpenEvents
  /** Writes the uses of bypass tokens to the database. */
  flushUses(): Promise<void>
}

export type AccessOptions = Partial<AppDeps['access']> & {
  /** Tokens that the node knows, as if from a database. */
  readonly tokens?: readonly Token[]
  readonly database?: Database
  /** For copies of database tables. */
  readonly dataDir?: string
  readonly clients?: Partial<ClientSettings>
  readonly keeps?: Partial<EventsSettings>
  /** Time for which direct edits are guarded. */
  readonly guardMs?: number
}

/** The HTTP API alone, with given rules, a fake clock and any store. */
export function serveApp(
  rules: unknown,
  makeStore?: (clock: FakeClock) => Store,
  access: AccessOptions = {},
): Promise<App> {
  return serveRules({ rules, source: STILL, ruleStore: undefined, makeStore, access })
}

/** A node whose rules are in this database, with a fake clock. Its client uses an admin token. */
export async function serveDatabase(database: Database, access: AccessOptions = {}): Promise<App> {
  const ruleStore = new RuleStore(database)
  const source = databaseSource(database, 'the database of a test')
  const app = await serveRules({ rules: [], source, ruleStore, makeStore: undefined, access: { ...access, database } })
  return { ...app, get: (path, token = ADMIN_TOKEN) => app.get(path, token) }
}

type RulesServed = {
  readonly rules: unknown
  readonly source: RuleSource
  readonly ruleStore: RuleStore | undefined
  readonly makeStore: ((clock: FakeClock) => Store) | undefined
  readonly access: AccessOptions
}

async function serveRules({ rules, source, ruleStore, makeStore, access: options }: RulesServed): Promise<App> {
  const {
    tokens,
    database,
    clients,
    keeps,
    guardMs = 0,
    dataDir = database === undefined ? '' : temporaryFolder(),
    ...access
  } = options
  const { log, logged } = captureLog()
  const clock = fakeClock()
  const metrics = new Metrics()
  const store = makeStore?.(clock) ?? memoryStore({ clock })
  metrics.watchStore(store)
  const registry = new BypassRegistry(() => clock.nowUs() / 1000)
  const bypass = (token: string) => registry.verify(token)
  const limiter = createLimiter({ rules: rules as RulesInput, store, clock, bypass })
  const lifecycle = { draining: false }
  const opened = {
    kind: 'memory' as const,
    store,
    unleased: store,
    failure: () => undefined,
    pressure: new StorePressure(log),
    drill: undefined,
  }
  const live = new LiveRules({ source, snapshot: undefined, limiter, metrics, log })
  await live.start()
  const unknown = new UnknownContent(log)
  const admin = await openAdminState(
    { ...defaults(), dataDir },
    { database, location: 'the database of a test', wantsFirstToken: true, limiter, unknown, log, clock },
  )
  if (tokens !== undefined) admin.tokens.replace(tokens)
  const events = await openEvents(
    { ...defaults(), ...keeps, dataDir },
    { database, limiter, store, metrics, log, clock },
  )
  const exceptions = await openExceptions(
    { ...defaults(), dataDir },
    {
      ...{ database, location: 'the database of a test', limiter, registry, unknown, metrics, log, clock },
      keyHash: keyHash('a secret of tests'),
      announce: () => {},
      flushMs: 3_600_000, // tests call flushUses
    },
  )
  const history = new DecisionHistory(clock, undefined)
  const shared = { limiter, metrics, log, keyHash: keyHash('a secret of tests'), history, headers: {}, clock }
  const rollouts = await openRollouts({ database, limiter, live, metrics, log, timing: ROLLOUT_TIMING })
  const { receipts } = await openReceipts(defaults(), { limiter, metrics, log, store: opened })
  const node = {
    limiter,
    live,
    store: opened,
    metrics,
    lifecycle,
    unknown,
    workers: singleWorker(),
    killSwitch: admin.killSwitch,
    events,
  }
  const app = await createApp({
    ...{
      ...shared,
      receipts,
      sharedDecisions: undefined,
      live,
      ruleStore,
      store: opened,
      lifecycle,
      unknown,
      admin,
      events,
    },
    exceptions,
    rollouts: { ...rollouts, guardMs },
    checks: createCheckController({
      ...{ ...shared, receipts, events: events.pipeline },
      ...{ rollouts: rollouts.node, exceptions: exceptions.hooks },
    }),
    access: { adminToken: ADMIN_TOKEN, checksAreOpen: true, ...access },
    clients: { ...defaults(), ...clients },
    dashboard: openDashboard(defaults()),
    fleet: openFleet(defaults(), { ...node, database, alerts: { open: () => [] } }, log),
  })
  const address = await app.listen({ host: '127.0.0.1', port: 0 })
  onTestFinished(async () => {
    await app.close()
    await rollouts.close()
    await exceptions.close()
    await events.close()
    await admin.close()
    await live.stop()
    await limiter.close()
  })
  return {
    ...clientOf(address, logged),
    clock,
    metrics,
    lifecycle,
    admin,
    events,
    flushUses: () => exceptions.flushUses(),
  }
}

/** Short intervals, so that tests need not wait. */
export const ROLLOUT_TIMING = { tickMs: 200, confirmMs: 15_000 }

/** A file that never changes. */
const STILL: RuleSource = {
  kind: 'file',
  location: 'the file /etc/sluice/rules.yaml',
  read: async () => undefined,
  watch: async () => ({ stop: async () => {} }),
  close: async () => {},
}

export type Service = Client & { readonly rulesPath: string; drain(): void; close(): Promise<void> }

/** The complete service as the command starts it, in this process, with its rules in a file. */
export async function serveFile(
  rules: string,
  settings: Partial<Settings> = {},
  closeMsMax?: number,
): Promise<Service> {
  const rulesPath = ruleFile(rules)
  return { ...(await serveSettings({ ...settings, rules: rulesPath }, closeMsMax)), rulesPath }
}

/** The same with its rules wherever the settings say. */
export async function serveSettings(
  settings: Partial<Settings>,
  closeMsMax?: number,
): Promise<Omit<Service, 'rulesPath'>> {
  const { log, logged } = captureLog()
  const all = { ...defaults(), adminToken: ADMIN_TOKEN, ...settings, port: 0 }
  const server = await startServer(all, log, closeMsMax)
  onTestFinished(() => server.close())
  return { ...clientOf(server.address, logged), drain: server.drain, close: server.close }
}

/** The same with its rules in its own embedded database. */
export async function serveEmbedded(settings: Partial<Settings>): Promise<Client> {
  const { log, logged } = captureLog()
  const server = await startServer({ ...defaults(), ...settings, port: 0, dataDir: await sharedDataDir() }, log)
  onTestFinished(() => server.close())
  return clientOf(server.address, logged)
}

/** A rule file in its own folder, deleted after the test. */
export function ruleFile(content: string | Uint8Array, name = 'rules.yaml'): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-server-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, name)
  writeFileSync(path, content)
  return path
}

export function defaults(): Settings {
  const values = Object.entries(SETTINGS).map(([name, { fallback }]) => [name, fallback()])
  return Object.fromEntries(values) as Settings
}

export function captureLog(level: Settings['logLevel'] = 'debug'): { log: Log; logged: Record<string, unknown>[] } {
  const logged: Record<string, unknown>[] = []
  const log = createLog(level, { write: (line: string) => logged.push(JSON.parse(line) as Record<string, unknown>) })
  return { log, logged }
}

export function clientOf(address: string, logged: readonly Record<string, unknown>[] = []): Client {
  const send = async (path: string, init: RequestInit): Promise<Answer> => {
    const response = await fetch(address + path, init)
    const type = response.headers.get('content-type') ?? ''
    const isEndless = type.startsWith('text/event-stream')
    if (isEndless) await response.body?.cancel()
    const text = isEndless ? '' : await response.text()
    const isJson = type.includes('json')
    const body = (isJson ? JSON.parse(text) : { text }) as Record<string, unknown>
    return { status: response.status, headers: response.headers, body }
  }
  const bearer = (token?: string) => (token === undefined ? {} : { authorization: `Bearer ${token}` })
  const post = (path: string, body: unknown, token?: string) => {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    const headers = { 'content-type': 'application/json', ...bearer(token) }
    return send(path, { method: 'POST', headers, body: text })
  }
  return {
    address,
    logged,
    send,
    post,
    get: (path, token) => send(path, { headers: bearer(token) }),
    check: async (body) => (await post(CHECK, body)).body,
  }
}
