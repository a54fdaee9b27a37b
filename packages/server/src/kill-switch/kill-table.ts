// Disabled rules in the database: they survive restarts and reach all nodes within a second.

import { appendAudit } from '../audit/audit.ts'
import { requireUnderstood } from '../compatibility/requirements.ts'
import type { Database, Queries } from '../db/database.ts'
import type { Kill, KillStore } from './kill-switch.ts'

export const KILLS_CHANNEL = 'sluice_kills'
/** Features that nodes need to disable rules. */
export const KILL_FEATURES: readonly string[] = ['kill_switch']
/** Key for all rules: rule ids are never empty. */
const EVERYTHING = ''

type KillRow = {
  readonly rule_id: string
  readonly since: Date
  readonly actor: string
  readonly name: string | null
  readonly reason: string | null
}

export async function readKills(queries: Queries): Promise<Kill[]> {
  const rows = await queries.query<KillRow>(
    'SELECT rule_id, since, actor, name, reason FROM kills LEFT JOIN api_tokens ON id = actor ORDER BY since, rule_id',
    [],
  )
  return rows.map(({ rule_id, since, actor, name, reason }) => {
    const ruleId = rule_id === EVERYTHING ? null : rule_id
    return { ruleId, since: since.toISOString(), by: actor, byName: name, reason }
  })
}

/** `refresh` applies the table on this node. */
export function killsInDatabase(database: Database, refresh: () => Promise<void>, now: () => Date): KillStore {
  const change = async (work: (queries: Queries) => Promise<void>) => {
    await database.transaction(async (queries) => {
      await work(queries)
      await queries.query(`SELECT pg_notify('${KILLS_CHANNEL}', '')`)
    })
    await refresh()
  }
  return {
    durable: true,
    disable: ({ ruleId, since, by, reason }) =>
      change(async (queries) => {
        await requireUnderstood(queries, KILL_FEATURES)
        await queries.query(
          `INSERT INTO kills (rule_id, since, actor, reason) VALUES ($1, $2, $3, $4)
           ON CONFLICT (rule_id)
             DO UPDATE SET since = excluded.since, actor = excluded.actor, reason = excluded.reason`,
          [ruleId ?? EVERYTHING, since, by, reason],
        )
        await audit(queries, { actor: by, action: 'kill_switch.on', ruleId, reason }, now())
      }),
    enable: (ruleId, by, reason) =>
      change(async (queries) => {
        await queries.query('DELETE FROM kills WHERE rule_id = $1', [ruleId ?? EVERYTHING])
        await audit(queries, { actor: by, action: 'kill_switch.off', ruleId, reason }, now())
      }),
  }
}

type KillChange = {
  readonly actor: string
  readonly action: string
  readonly ruleId: string | null
  readonly reason: string | null
}

function audit(queries: Queries, { actor, action, ruleId, reason }: KillChange, at: Date): Promise<void> {
  const target = ruleId === null ? 'everything' : `rule ${ruleId}`
  return appendAudit(queries, { actor, action, target, diff: {}, reason: reason ?? undefined }, at)
}
