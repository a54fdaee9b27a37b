// Records of a node in the database besides rules: tokens, the kill switch, violations. Without a database tokens are
// those of the settings, there are no violations, and a kill applies to this node alone, in all its workers.

import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { type Clock, type Limiter, wallClock } from 'sluice'
import { TokenBook } from '../access/token-book.ts'
import { followTokenFile } from '../access/token-file.ts'
import {
  createFirstToken,
  createToken,
  listTokens,
  noteUses,
  readTokens,
  revokeToken,
  TOKENS_CHANNEL,
} from '../access/token-table.ts'
import { type Audited, type AuditVerdict, auditedIn, verifyAudit } from '../audit/audit.ts'
import type { Database } from '../db/database.ts'
import { Followed } from '../db/followed.ts'
import { Retention } from '../db/retention.ts'
import type { TokenStore } from '../http/routes/tokens.ts'
import type { FindViolations } from '../http/routes/violations.ts'
import { type KillStore, KillSwitch, killsInMemory } from '../kill-switch/kill-switch.ts'
import { KILLS_CHANNEL, killsInDatabase, readKills } from '../kill-switch/kill-table.ts'
import { keyHash, type Log } from '../log.ts'
import type { Settings } from '../settings/settings.ts'
import { ViolationLog } from '../violations/violation-log.ts'
import { deleteViolations, findViolations } from '../violations/violation-table.ts'
import { aloneInNode, type NodeWorkers } from '../workers/node-workers.ts'

export type Records = {
  readonly tokens: TokenBook
  readonly killSwitch: KillSwitch
  readonly kills: KillStore
  readonly tokenStore: TokenStore | undefined
  readonly violations: ViolationLog | undefined
  readonly findViolations: FindViolations | undefined
  readonly verifyAudit: (() => Promise<AuditVerdict>) | undefined
  /** Without a database there is no audit: then it is only done. */
  readonly audited: Audited
  /** A token of the role admin that this very start has made: to be shown once. */
  readonly firstToken: string | undefined
  close(): Promise<void>
}

export type RecordsParts = {
  readonly limiter: Limiter
  readonly log: Log
  /** Where copies are kept for starts without the database, and which database they are of. */
  readonly dataDir: string
  readonly place: string
  readonly wantsFirstToken: boolean
  /** Tokens of a node without a database. */
  readonly tokensFile?: string | undefined
  readonly clock?: Clock | undefined
  /** Alone by default. */
  readonly workers?: NodeWorkers | undefined
} & Pick<Settings, 'violationsRetentionMs' | 'violationsKeys' | 'keySecret'>

export async function openRecords(database: Database | undefined, parts: RecordsParts): Promise<Records> {
  const { limiter, log, workers = aloneInNode() } = parts
  const tokens = new TokenBook()
  const killSwitch = new KillSwitch(limiter, log)
  return database === undefined
    ? withoutDatabase(parts, tokens, killSwitch, workers)
    : await inDatabase(database, parts, tokens, killSwitch)
}

function withoutDatabase(
  { tokensFile, log }: RecordsParts,
  tokens: TokenBook,
  killSwitch: KillSwitch,
  workers: NodeWorkers,
): Records {
  const followed = tokensFile === undefined ? undefined : followTokenFile(tokensFile, tokens, log)
  return {
    ...{ tokens, killSwitch, kills: killsInMemory(killSwitch, workers), tokenStore: undefined, firstToken: undefined },
    ...{ violations: undefined, findViolations: undefined, verifyAudit: undefined },
    audited: async (_entry, work) => work(),
    close: async () => followed?.stop(),
  }
}

async function inDatabase(
  database: Database,
  parts: RecordsParts,
  tokens: TokenBook,
  killSwitch: KillSwitch,
): Promise<Records> {
  const { log, dataDir, place, wantsFirstToken, clock = wallClock } = parts
  const now = () => new Date(clock.nowUs() / 1000)
  const print = createHash('sha256').update(place).digest('hex').slice(0, 12)
  const copyPath = (name: string) => (database.kind === 'embedded' ? undefined : join(dataDir, `${name}-${print}.json`))
  const first = wantsFirstToken ? await createFirstToken(database, now()).catch(() => undefined) : undefined
  const tokenTable = new Followed({
    ...{ database, log, channel: TOKENS_CHANNEL, what: 'tokens', copyPath: copyPath('tokens') },
    read: async (queries) => {
      await noteUses(queries, tokens.takeUses())
      return readTokens(queries)
    },
    use: (found) => tokens.replace(found),
  })
  const killTable = new Followed({
    ...{ database, log, channel: KILLS_CHANNEL, what: 'kills', copyPath: copyPath('kills') },
    read: readKills,
    use: (found) => killSwitch.replace(found),
  })
  await Promise.all([tokenTable.start(), killTable.start()])
  const violations = openViolations(database, parts, clock)
  return {
    tokens,
    killSwitch,
    kills: killsInDatabase(database, () => killTable.refresh(), now),
    tokenStore: tokenStoreOf(database, () => tokenTable.refresh(), now),
    violations: violations.log,
    findViolations: violations.find,
    verifyAudit: () => verifyAudit(database),
    audited: auditedIn(database, now),
    firstToken: first?.secret,
    close: async () => {
      await Promise.all([tokenTable.stop(), killTable.stop(), violations.close()])
    },
  }
}

type Violations = {
  readonly log: ViolationLog | undefined
  readonly find: FindViolations
  close(): Promise<void>
}

function openViolations(database: Database, parts: RecordsParts, clock: Clock): Violations {
  const { log, violationsRetentionMs: keepMs, violationsKeys, keySecret } = parts
  const hash = keySecret === undefined ? undefined : keyHash(keySecret)
  const written = { database, clock, log, keyHash: violationsKeys === 'hmac' ? hash : undefined }
  const violations = keepMs === 0 ? undefined : new ViolationLog(written)
  const retention = new Retention({
    ...{ what: 'violations', keepMs, clock, log },
    deleteBatch: (before) => deleteViolations(database, before),
    // Nothing else does: the embedded database has no autovacuum.
    reclaim: database.kind === 'embedded' ? async () => void (await database.query('VACUUM violations')) : undefined,
  })
  const find: FindViolations = (query) => {
    const since = new Date(Math.max(retention.oldest.getTime(), query.since?.getTime() ?? 0))
    return findViolations(database, { ...query, since }, hash)
  }
  return {
    log: violations,
    find,
    close: async () => void (await Promise.all([violations?.close(), retention.close()])),
  }
}

function tokenStoreOf(database: Database, refresh: () => Promise<void>, now: () => Date): TokenStore {
  return {
    list: () => listTokens(database),
    create: async (wish, actor) => {
      const made = await createToken(database, wish, actor, now())
      await refresh()
      return made
    },
    revoke: async (tokenId, actor) => {
      const known = await revokeToken(database, tokenId, actor, now())
      await refresh()
      return known
    },
  }
}
