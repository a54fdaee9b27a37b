// Where the decisions of all nodes are kept: in Redis if the counters are there, else in a database that nodes share.

import { DECISIONS_KEPT_MS, type DecisionSlots } from '../checks/shared-decisions.ts'
import type { SharedNotes } from '../counters/shared-notes.ts'
import type { Database } from '../db/database.ts'

/** Undefined where this process is the only one that could ask. */
export function decisionSlots(
  notes: SharedNotes | undefined,
  database: Database | undefined,
): DecisionSlots | undefined {
  if (notes !== undefined) return slotsInRedis(notes)
  return database?.kind === 'postgres' ? slotsInDatabase(database) : undefined
}

function slotsInRedis(notes: SharedNotes): DecisionSlots {
  const name = (slot: number) => `decision:${slot}`
  return {
    putMany: async (texts) => {
      await Promise.all(texts.map(({ slot, text }) => notes.put(name(slot), text, DECISIONS_KEPT_MS)))
    },
    get: async (slot) => (await notes.get(name(slot)))[0],
  }
}

const CLEAN_MS = 60_000
const KEPT = `interval '${DECISIONS_KEPT_MS} ms'`

function slotsInDatabase(database: Database): DecisionSlots {
  let cleanedMs = Number.NEGATIVE_INFINITY
  return {
    putMany: async (texts) => {
      if (performance.now() - cleanedMs > CLEAN_MS) {
        cleanedMs = performance.now()
        await database.query(`DELETE FROM decisions WHERE decided_at < now() - ${KEPT}`)
      }
      await database.query(
        `INSERT INTO decisions (slot, decision, decided_at)
         SELECT slot, text, now() FROM jsonb_to_recordset($1::jsonb) AS row (slot integer, text text)
         ON CONFLICT (slot) DO UPDATE SET decision = excluded.decision, decided_at = excluded.decided_at`,
        [JSON.stringify(texts)],
      )
    },
    get: async (slot) => {
      const sql = `SELECT decision FROM decisions WHERE slot = $1 AND decided_at >= now() - ${KEPT}`
      const [row] = await database.query<{ decision: string }>(sql, [slot])
      return row?.decision
    },
  }
}
