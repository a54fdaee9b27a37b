// Opens tokens and kill switch. Without a database, tokens come from --tokens-file, and the kill switch applies to this
// node only (all its workers).

import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { type Clock, type Limiter, wallClock } from 'sluice'
import { followTokenFile } from '../access/token-file.ts'
import { TokenRegistry } from '../access/token-registry.ts'
import {
  createFirstToken,
  createToken,
  listTokens,
  noteUses,
  readTokens,
  revokeToken,
  TOKENS_CHANNEL,
  type TokenStore,
} from '../access/token-table.ts'
import { applyApprovals } from '../approvals/required-approvals.ts'
import { auditedIn, verifyAudit } from '../audit/audit.ts'
import { listAudit } from '../audit/audit-list.ts'
import type { UnknownContent } from '../compatibility/unknown-content.ts'
import { CachedTable } from '../db/cached-table.ts'
import type { Database } from '../db/database.ts'
import { MIGRATIONS_CHANNEL, newerMigrations } from '../db/migrate.ts'
import type { AdminDeps } from '../http/app.ts'
import { KillSwitch, killsInMemory } from '../kill-switch/kill-switch.ts'
import { KILLS_CHANNEL, killsInDatabase, readKills } from '../kill-switch/kill-table.ts'
import type { Log } from '../log.ts'
import type { Settings } from '../settings/settings.ts'
import { type NodeWorkers, singleWorker } from '../workers/node-workers.ts'

export type AdminState = AdminDeps & {
  /** Admin token created by this start, to be shown once. */
  readonly firstToken: string | undefined
  close(): Promise<void>
}

export type AdminSettings = Pick<Settings, 'dataDir' | 'tokensFile' | 'approvals'>

export type AdminStateDeps = {
  readonly database: Database | undefined
  /** Location of the database. Copies on disk, for starts while it is unreachable, are stored per location. */
  readonly location: string
  readonly wantsFirstToken: boolean
  readonly limiter: Limiter
  readonly unknown: UnknownContent
  readonly log: Log
  readonly clock?: Clock | undefined
  /** Default: this process is the only worker. */
  readonly workers?: NodeWorkers | undefined
}

export async function openAdminState(settings: AdminSettings, deps: AdminStateDeps): Promise<AdminState> {
  const { database, limiter, log, workers = singleWorker() } = deps
  const tokens = new TokenRegistry()
  const killSwitch = new KillSwitch(limiter, log)
  return database === undefined
    ? withoutDatabase(settings.tokensFile, log, tokens, killSwitch, workers)
    : await inDatabase(database, settings, deps, tokens, killSwitch)
}

function withoutDatabase(
  tokensFile: string | undefined,
  log: Log,
  tokens: TokenRegistry,
  killSwitch: KillSwitch,
  workers: NodeWorkers,
): AdminState {
  const followed = tokensFile === undefined ? undefined : followTokenFile(tokensFile, tokens, log)
  return {
    tokens,
    killSwitch,
    kills: killsInMemory(killSwitch, workers),
    tokenStore: undefined,
    firstToken: undefined,
    verifyAudit: undefined,
    listAudit: undefined,
    audited: async (_entry, work) => work(),
    close: async () => followed?.stop(),
  }
}

async function inDatabase(
  database: Database,
  settings: AdminSettings,
  deps: AdminStateDeps,
  tokens: TokenRegistry,
  killSwitch: KillSwitch,
): Promise<AdminState> {
  const { unknown, log, location, wantsFirstToken, clock = wallClock } = deps
  const now = () => new Date(clock.nowUs() / 1000)
  const fingerprint = createHash('sha256').update(location).digest('hex').slice(0, 12)
  const copyPath = (name: string) =>
    database.kind === 'embedded' ? undefined : join(settings.dataDir, `${name}-${fingerprint}.json`)
  const first = wantsFirstToken ? await createFirstToken(database, now()).catch(() => undefined) : undefined
  await applyApprovals(database, settings.approvals, log, now()).catch((error) => {
    // The database is down: the number that it holds applies when it is back.
    log.event('table_unreachable', { table: 'approvals_required', reason: String(error) })
  })
  const tokenTable = new CachedTable({
    database,
    log,
    channel: TOKENS_CHANNEL,
    table: 'tokens',
    copyPath: copyPath('tokens'),
    read: async (queries) => {
      await noteUses(queries, tokens.takeUses())
      return readTokens(queries, unknown)
    },
    use: (found) => tokens.replace(found),
  })
  const killTable = new CachedTable({
    database,
    log,
    channel: KILLS_CHANNEL,
    table: 'kills',
    copyPath: copyPath('kills'),
    read: readKills,
    use: (found) => killSwitch.replace(found),
  })
  const migrationTable = new CachedTable({
    database,
    log,
    channel: MIGRATIONS_CHANNEL,
    table: 'schema_migrations',
    copyPath: undefined,
    read: newerMigrations,
    use: (found) => unknown.found('migrations', found, 'tables may hold what this version ignores'),
  })
  const tables = [tokenTable, killTable, migrationTable]
  await Promise.all(tables.map((table) => table.start()))
  return {
    tokens,
    killSwitch,
    kills: killsInDatabase(database, () => killTable.refresh(), now),
    tokenStore: tokenStoreOf(database, () => tokenTable.refresh(), now),
    verifyAudit: () => verifyAudit(database),
    listAudit: (query) => listAudit(database, query),
    audited: auditedIn(database, now),
    firstToken: first?.secret,
    close: async () => {
      await Promise.all(tables.map((table) => table.stop()))
    },
  }
}

function tokenStoreOf(database: Database, refresh: () => Promise<void>, now: () => Date): TokenStore {
  return {
    list: () => listTokens(database),
    create: async (request, actor) => {
      const created = await createToken(database, request, actor, now())
      await refresh()
      return created
    },
    revoke: async (tokenId, actor) => {
      const known = await revokeToken(database, tokenId, actor, now())
      await refresh()
      return known
    },
  }
}
