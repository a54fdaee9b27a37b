// Ring of decisions shared by all nodes: in Redis if the buckets are there, else in a shared database.

import { DECISIONS_KEPT_MS, type DecisionRing } from '../checks/shared-decisions.ts'
import type { Database } from '../db/database.ts'
import type { SharedValues } from '../store/shared-values.ts'

/** Undefined when there is no Redis or shared database: no other process could read the ring. */
export function openDecisionRing(
  sharedValues: SharedValues | undefined,
  database: Database | undefined,
): DecisionRing | undefined {
  if (sharedValues !== undefined) return redisRing(sharedValues)
  return database?.kind === 'postgres' ? databaseRing(database) : undefined
}

function redisRing(sharedValues: SharedValues): DecisionRing {
  const name = (position: number) => `decision:${position}`
  return {
    putMany: async (texts) => {
      await Promise.all(texts.map(({ position, text }) => sharedValues.put(name(position), text, DECISIONS_KEPT_MS)))
    },
    get: async (position) => (await sharedValues.get(name(position)))[0],
  }
}

const CLEAN_MS = 60_000
const KEPT = `interval '${DECISIONS_KEPT_MS} ms'`

function databaseRing(database: Database): DecisionRing {
  let cleanedMs = Number.NEGATIVE_INFINITY
  return {
    putMany: async (texts) => {
      if (performance.now() - cleanedMs > CLEAN_MS) {
        cleanedMs = performance.now()
        await database.query(`DELETE FROM decisions WHERE decided_at < now() - ${KEPT}`)
      }
      await database.query(
        `INSERT INTO decisions (slot, decision, decided_at)
         SELECT position, text, now() FROM jsonb_to_recordset($1::jsonb) AS row (position integer, text text)
         ON CONFLICT (slot) DO UPDATE SET decision = excluded.decision, decided_at = excluded.decided_at`,
        [JSON.stringify(texts)],
      )
    },
    get: async (position) => {
      const sql = `SELECT decision FROM decisions WHERE slot = $1 AND decided_at >= now() - ${KEPT}`
      const [row] = await database.query<{ decision: string }>(sql, [position])
      return row?.decision
    },
  }
}
