// Brings overrides of the database into the limiter of this process: all of them at the start, and then only those that
// changed, after each notification and every few seconds. While the database is down, the last known ones apply; a node
// that starts during the outage uses its copy on disk. Drops expired overrides by itself.

import { type Limiter, LimiterError, type Override } from 'sluice'
import type { UnknownContent } from '../compatibility/unknown-content.ts'
import type { Database, Listening } from '../db/database.ts'
import { Refresher } from '../db/refresher.ts'
import { TableCopy } from '../db/table-copy.ts'
import type { Log } from '../log.ts'
import type { Effect } from './override.ts'
import { type OverrideRow, readOverrides } from './override-rows.ts'
import { OVERRIDES_CHANNEL } from './override-table.ts'

const TABLE = 'overrides'
/** Shortest time between two copies to disk, which may be large. */
const COPY_MS = 30_000

export type OverrideFeedDeps = {
  readonly database: Database
  readonly limiter: Pick<Limiter, 'changeOverrides'>
  readonly unknown: UnknownContent
  readonly log: Log
  readonly nowMs: () => number
  /** Undefined for the embedded database, which needs no copy. */
  readonly copyPath: string | undefined
}

export class OverrideFeed {
  readonly #deps: OverrideFeedDeps
  readonly #refresher: Refresher = new Refresher(() => this.#load())
  readonly #copy: TableCopy<readonly Override[]>
  #overrides = new Map<string, Override>()
  /** Invalid ones, which do not apply, by id: when they end. */
  #skipped = new Map<string, number | null>()
  #revision: number | undefined
  #copiedRevision: number | undefined
  #copiedMs = Number.NEGATIVE_INFINITY
  #unreachable = false
  #listening: Listening | undefined

  constructor(deps: OverrideFeedDeps) {
    this.#deps = deps
    this.#copy = new TableCopy(TABLE, deps.copyPath, deps.log)
  }

  async start(): Promise<void> {
    await this.refresh()
    if (this.#unreachable) await this.#copy.read((overrides) => this.#replace(overrides))
    this.#listening = await this.#deps.database.listen(OVERRIDES_CHANNEL, () => void this.refresh())
    this.#refresher.poll()
  }

  /** Resolves once overrides at least as new as this call are in force. Never rejects. */
  refresh(): Promise<void> {
    return this.#refresher.refresh()
  }

  async stop(): Promise<void> {
    const stopped = this.#refresher.stop()
    await this.#listening?.stop()
    await stopped
    if (!this.#unreachable) await this.#writeCopy()
  }

  /** Number of overrides in force. */
  get size(): number {
    return this.#overrides.size
  }

  async #load(): Promise<void> {
    const { database, log, nowMs } = this.#deps
    this.#dropExpired()
    try {
      const { revision, complete, rows } = await readOverrides(database, this.#revision)
      if (complete) this.#replace(rows.map(overrideOf))
      else this.#change(rows)
      this.#revision = revision
      // Rows may have changed during a complete read, which takes a while.
      if (complete) this.#change((await readOverrides(database, revision)).rows)
      this.#reportSkipped()
      if (this.#unreachable) log.event('table_reachable', { table: TABLE })
      this.#unreachable = false
    } catch (error) {
      if (!this.#unreachable) log.event('table_unreachable', { table: TABLE, reason: String(error) })
      this.#unreachable = true
    }
    if (nowMs() - this.#copiedMs >= COPY_MS && !this.#unreachable) await this.#writeCopy()
  }

  #replace(overrides: readonly Override[]): void {
    this.#overrides = new Map()
    this.#skipped = new Map()
    this.#deps.limiter.changeOverrides({ replaceAll: true })
    this.#set(overrides)
  }

  #change(rows: readonly OverrideRow[]): void {
    if (rows.length === 0) return
    const remove = rows.filter(({ state }) => state !== 'active').map(({ override_id }) => override_id)
    this.#deps.limiter.changeOverrides({ remove })
    for (const id of remove) this.#overrides.delete(id)
    for (const { override_id: id } of rows) this.#skipped.delete(id)
    this.#set(rows.filter(({ state }) => state === 'active').map(overrideOf))
  }

  /** Skips an invalid override, edited by hand or from a newer version, so that it does not block the others. */
  #set(overrides: readonly Override[]): void {
    const { limiter, log } = this.#deps
    try {
      limiter.changeOverrides({ set: overrides })
      for (const override of overrides) this.#overrides.set(override.id, override)
    } catch (error) {
      if (!(error instanceof LimiterError)) throw error
      const [only, ...others] = overrides
      if (only === undefined) return
      if (others.length === 0) {
        log.event('override_skipped', { override_id: only.id, reason: error.message })
        this.#skipped.set(only.id, only.expiresAtMs)
        return
      }
      const half = overrides.length >> 1
      this.#set(overrides.slice(0, half))
      this.#set(overrides.slice(half))
    }
  }

  /** Frees the memory of expired overrides; the limiter already ignores them. */
  #dropExpired(): void {
    const nowMs = this.#deps.nowMs()
    const expired: string[] = []
    for (const [id, expiresAtMs] of this.#skipped)
      if (expiresAtMs !== null && expiresAtMs <= nowMs) this.#skipped.delete(id)
    for (const { id, expiresAtMs } of this.#overrides.values())
      if (expiresAtMs !== null && expiresAtMs <= nowMs) expired.push(id)
    if (expired.length === 0) return
    this.#deps.limiter.changeOverrides({ remove: expired })
    for (const id of expired) this.#overrides.delete(id)
  }

  #reportSkipped(): void {
    this.#deps.unknown.found(TABLE, [...this.#skipped.keys()], 'they do not apply; the limits of the rules do')
  }

  async #writeCopy(): Promise<void> {
    if (this.#copiedRevision === this.#revision) return
    this.#copiedRevision = this.#revision
    this.#copiedMs = this.#deps.nowMs()
    await this.#copy.write([...this.#overrides.values()])
  }
}

function overrideOf({ override_id: id, rule_id: ruleId, fact, owner, effect, expires_ms: expiresAtMs }: OverrideRow) {
  return { id, ruleId, fact, owner, effect: limiterEffect(effect), expiresAtMs }
}

function limiterEffect(effect: Effect): Override['effect'] {
  if (!('limit' in effect)) return effect
  return { limit: effect.limit, ...(effect.limit_name === undefined ? {} : { limitName: effect.limit_name }) }
}
