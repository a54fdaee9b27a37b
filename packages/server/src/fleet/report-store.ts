// Shared storage of node reports: PostgreSQL, because operators look at the fleet when Redis is down; otherwise Redis;
// otherwise memory, which holds only the report of this process.

import type { Database } from '../db/database.ts'
import type { SharedValues } from '../store/shared-values.ts'

export type StoredReport = { readonly process: string; readonly text: string; readonly ageMs: number }

export type ReportStore = {
  /** Replaces the report of this process. */
  put(process: string, text: string): Promise<void>
  remove(process: string): Promise<void>
  /** Reports of all processes, including those that crashed less than KEPT_MS ago. */
  list(): Promise<readonly StoredReport[]>
}

const KEPT_MS = 300_000
const HASH = 'nodes'

export function openReportStore(
  database: Database | undefined,
  sharedValues: SharedValues | undefined,
  nowMs: () => number,
): ReportStore {
  if (database?.kind === 'postgres') return databaseReports(database)
  return sharedValues === undefined ? noReports : redisReports(sharedValues, nowMs)
}

/** A process without Redis and PostgreSQL is alone. */
const noReports: ReportStore = { put: async () => {}, remove: async () => {}, list: async () => [] }

function databaseReports(database: Database): ReportStore {
  return {
    put: async (process, text) => {
      await database.query(
        `INSERT INTO nodes (process, reported_at, report) VALUES ($1, now(), $2)
         ON CONFLICT (process) DO UPDATE SET reported_at = excluded.reported_at, report = excluded.report`,
        [process, text],
      )
    },
    remove: async (process) => {
      await database.query('DELETE FROM nodes WHERE process = $1', [process])
    },
    list: async () => {
      const kept = `interval '${KEPT_MS} ms'`
      await database.query(`DELETE FROM nodes WHERE reported_at < now() - ${kept}`)
      const rows = await database.query<{ process: string; report: string; age: number }>(
        `SELECT process, report, (extract(epoch FROM now() - reported_at) * 1000)::float8 AS age FROM nodes`,
      )
      return rows.map(({ process, report, age }) => ({ process, text: report, ageMs: age }))
    },
  }
}

/** Ages come from the clocks of the nodes, so they are off by the clock difference. */
function redisReports(values: SharedValues, nowMs: () => number): ReportStore {
  return {
    put: (process, text) => values.putField(HASH, process, `${Math.round(nowMs())} ${text}`),
    remove: (process) => values.removeField(HASH, process),
    list: async () => {
      const found = Object.entries(await values.fields(HASH)).map(([process, stored]) => {
        const [at = ''] = stored.split(' ', 1)
        return { process, text: stored.slice(at.length + 1), ageMs: Math.max(0, nowMs() - Number(at)) }
      })
      const old = found.filter(({ ageMs }) => !(ageMs < KEPT_MS))
      await Promise.all(old.map(({ process }) => values.removeField(HASH, process)))
      return found.filter(({ ageMs }) => ageMs < KEPT_MS)
    },
  }
}
