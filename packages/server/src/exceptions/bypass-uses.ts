// Writes uses of bypass tokens to the database every few seconds: totals, the time of the last use, and a sample for
// the audit log, which is bounded per token for all nodes together.

import { appendAudit } from '../audit/audit.ts'
import type { Database, Queries } from '../db/database.ts'
import type { BypassRegistry, BypassUses } from './bypass-registry.ts'

const FLUSH_MS = 2000
/** At most one audit entry per token in this time, over all nodes. The first use is recorded at once. */
export const AUDIT_INTERVAL_MS: number = 5 * 60_000

export type BypassUsesDeps = {
  readonly database: Database
  readonly registry: BypassRegistry
  readonly now: () => Date
  readonly flushMs?: number | undefined
}

export class BypassUseWriter {
  readonly #deps: BypassUsesDeps
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> | undefined
  #closed = false

  constructor(deps: BypassUsesDeps) {
    this.#deps = deps
    this.#schedule()
  }

  /** Never rejects: uses that cannot be written are written later. */
  async flush(): Promise<void> {
    const { database, registry, now } = this.#deps
    const uses = registry.takeUses()
    if (uses.size === 0) return
    const at = now()
    try {
      await database.transaction(async (queries) => {
        // In the order of ids, so that nodes do not deadlock.
        for (const [id, used] of [...uses].sort()) await noteUses(queries, id, used, at)
      })
    } catch {
      registry.returnUses(uses)
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    await this.#flushing
    await this.flush()
  }

  #schedule(): void {
    this.#timer = setTimeout(() => {
      this.#flushing = this.flush().finally(() => {
        this.#flushing = undefined
        if (!this.#closed) this.#schedule()
      })
    }, this.#deps.flushMs ?? FLUSH_MS).unref()
  }
}

type Noted = { readonly uses: number; readonly audited_uses: number; readonly audited_at: Date | null }

async function noteUses(queries: Queries, bypassId: string, used: BypassUses, at: Date): Promise<void> {
  const [noted] = await queries.query<Noted>(
    `UPDATE bypass_tokens SET uses = uses + $2, last_used_at = greatest(last_used_at, $3::timestamptz)
     WHERE bypass_id = $1 RETURNING uses, audited_uses, audited_at`,
    [bypassId, used.uses, new Date(used.lastMs)],
  )
  if (noted === undefined) return
  const isRecent = noted.audited_at !== null && at.getTime() - noted.audited_at.getTime() < AUDIT_INTERVAL_MS
  if (isRecent) return
  const sql = 'UPDATE bypass_tokens SET audited_at = $2, audited_uses = uses WHERE bypass_id = $1'
  await queries.query(sql, [bypassId, at])
  const diff = { uses: noted.uses - noted.audited_uses, total_uses: noted.uses, last: used.sample }
  await appendAudit(queries, { actor: bypassId, action: 'bypass.use', target: bypassId, diff }, at)
}
