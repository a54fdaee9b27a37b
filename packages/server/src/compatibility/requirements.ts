// Refuses writes that a live node would ignore. During a rolling upgrade, nodes of several versions share one database,
// and an older one skips what it does not know. Every node reports the features it understands; a write names those it
// needs and is refused while a live node lacks one. The check runs in the transaction of the write, on the same
// database: there is no second place that could be unreachable.

import { LISTENER_NAME, type Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { WITHOUT_FEATURES, WITHOUT_REPORTS } from './history.ts'

/** A process that has not reported for this long has stopped, or cannot reach the others. */
export const SILENT_MS = 10_000
const NAMED_MAX = 20
const FEATURES_NAMED_MAX = 5

/** A live node of an older version. */
type OlderNode = { readonly name: string; readonly lacks: readonly string[]; readonly fix: string }

/** Throws NODES_OUTDATED if a live node does not understand all of these. Queries nothing if every version does. */
export async function requireUnderstood(queries: Queries, features: Iterable<string>): Promise<void> {
  const needed = [...new Set(features)].filter((feature) => !WITHOUT_REPORTS.has(feature))
  if (needed.length === 0) return
  const older = [...(await reportingNodes(queries, needed)), ...(await nodesWithoutReports(queries, needed))]
  if (older.length > 0) throw nodesOutdated(older)
}

/** Features in this list that a node lacks. `reported` is no list: it reports none that this version can read. */
export function lacking(needed: readonly string[], reported: unknown): string[] {
  const known = Array.isArray(reported) ? new Set<unknown>(reported) : WITHOUT_FEATURES
  return needed.filter((feature) => !known.has(feature))
}

/** The clock of the database may have been set back: a report far in the future says nothing about now. */
async function reportingNodes(queries: Queries, needed: readonly string[]): Promise<OlderNode[]> {
  const rows = await queries.query<{ readonly process: string; readonly report: string }>(
    `SELECT process, report FROM nodes WHERE reported_at > clock_timestamp() - interval '${SILENT_MS} ms'
       AND reported_at < clock_timestamp() + interval '${SILENT_MS} ms' ORDER BY process`,
  )
  return rows.flatMap(({ process, report }) => {
    const { node, address, version, understands } = fieldsOf(report)
    const lacks = lacking(needed, understands)
    const isNamed = [node, address, version].every((fact) => typeof fact === 'string')
    const name = isNamed && Array.isArray(understands ?? []) ? `${node} at ${address}, version ${version}` : process
    return lacks.length === 0 ? [] : [{ name, lacks, fix: 'upgrade or stop this node' }]
  })
}

/** Nothing if the text is no JSON: one row that another program wrote must not fail every write. */
function fieldsOf(report: string): Readonly<Record<string, unknown>> {
  try {
    return Object(JSON.parse(report))
  } catch {
    return {}
  }
}

/**
 * The first versions write no reports, but listen for changes of rules on a connection that PostgreSQL lists. Newer
 * versions name that connection; versions between the two listen for incidents last.
 */
async function nodesWithoutReports(queries: Queries, needed: readonly string[]): Promise<OlderNode[]> {
  const rows = await queries.query<{ readonly pid: number; readonly address: string | null }>(
    `SELECT pid, host(client_addr) AS address FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'LISTEN "sluice\\_%'
       AND query <> 'LISTEN "sluice_incident"' AND application_name <> '${LISTENER_NAME}' ORDER BY pid`,
  )
  return rows.map(({ pid, address }) => ({
    name: `a node at ${address ?? 'a local socket'} that writes no reports, PostgreSQL backend ${pid}`,
    lacks: needed,
    fix: `upgrade or stop this node; if its host is gone, SELECT pg_terminate_backend(${pid}) ends its connection`,
  }))
}

function nodesOutdated(older: readonly OlderNode[]): ProblemError {
  const shown = older.slice(0, NAMED_MAX)
  const named = shown.map(({ name, lacks }) => `${name} (${featureList(lacks)})`).join('; ')
  const more = older.length > shown.length ? `; and ${older.length - shown.length} more` : ''
  const detail =
    `Nothing was written: nodes of an older version would ignore it: ${named}${more}. ` +
    'Upgrade or stop them, or wait until they are: --when-ready, or the header "Prefer: wait=20".'
  const errors = shown.map(({ name, lacks, fix }) => ({ field: featureList(lacks), value: name, fix }))
  return new ProblemError(problem('NODES_OUTDATED', detail, errors))
}

function featureList(features: readonly string[]): string {
  const shown = features.slice(0, FEATURES_NAMED_MAX).join(', ')
  return features.length > FEATURES_NAMED_MAX ? `${shown} and ${features.length - FEATURES_NAMED_MAX} more` : shown
}
