// Incident tools in the database: the freeze of rule changes, and the global factor. They survive restarts and reach
// all nodes within a second.

import type { Caller } from '../access/roles.ts'
import type { Approvals } from '../approvals/approval-table.ts'
import { appendAudit } from '../audit/audit.ts'
import { requireUnderstood } from '../compatibility/requirements.ts'
import type { Database, Queries } from '../db/database.ts'
import { ProblemError, problem } from '../problems/problem.ts'
import { isFrozen, setFreeze } from '../rules/freeze.ts'
import {
  approveFactor,
  createFactor,
  endFactor,
  type FactorRequest,
  type FactorState,
  type ListedFactor,
  listFactors,
} from './factor-table.ts'

export const INCIDENT_CHANNEL = 'sluice_incident'
/** Features that nodes need to refuse changes of rules during a freeze. */
export const FREEZE_FEATURES: readonly string[] = ['freeze']

export type IncidentState = {
  /** Undefined: rules may change. */
  readonly freeze:
    | { readonly since: string; readonly by: string; readonly by_name: string | null; readonly reason: string | null }
    | undefined
  /** The active factor, and one that waits for approval. */
  readonly factors: readonly ListedFactor[]
}

/** Each change resolves once it is active on this node. */
export type IncidentTable = {
  /** Throws if rules are frozen already. */
  freeze(reason: string, actor: string): Promise<void>
  /** Throws if they are not. */
  unfreeze(reason: string | undefined, actor: string): Promise<void>
  setFactor(
    request: FactorRequest,
    actor: string,
  ): Promise<{ readonly factorId: string; readonly state: FactorState; readonly approvalsRequired: number }>
  approveFactor(factorId: string, caller: Caller): Promise<Approvals>
  endFactor(reason: string | undefined, actor: string): Promise<void>
  read(): Promise<IncidentState>
}

export type IncidentDeps = {
  readonly database: Database
  readonly now: () => Date
  /** Applies changes on this node. */
  readonly refresh: () => Promise<void>
}

export function incidentTable({ database, now, refresh }: IncidentDeps): IncidentTable {
  const change = async <T>(work: (queries: Queries, at: Date) => Promise<T>): Promise<T> => {
    const result = await database.transaction(async (queries) => {
      const changed = await work(queries, now())
      await queries.query(`SELECT pg_notify('${INCIDENT_CHANNEL}', '')`)
      return changed
    })
    await refresh()
    return result
  }
  return {
    freeze: (reason, actor) => change((queries, at) => freeze(queries, reason, actor, at)),
    unfreeze: (reason, actor) => change((queries, at) => unfreeze(queries, reason, actor, at)),
    setFactor: (request, actor) => change((queries, at) => createFactor(queries, request, actor, at)),
    approveFactor: (id, caller) => change((queries, at) => approveFactor(queries, id, caller, at)),
    endFactor: (reason, actor) => change((queries, at) => endFactor(queries, actor, reason, at)),
    read: () => readIncident(database, now()),
  }
}

export async function readIncident(queries: Queries, at: Date): Promise<IncidentState> {
  const frozen = await isFrozen(queries)
  const freeze = frozen && {
    ...{ since: frozen.since.toISOString(), by: frozen.by, by_name: frozen.byName ?? null, reason: frozen.reason },
  }
  return { freeze, factors: await listFactors(queries, at) }
}

/** Locks the version of the rules, as every change of rules does: it waits for running changes and stops later ones. */
async function freeze(queries: Queries, reason: string, actor: string, at: Date): Promise<void> {
  await queries.query('SELECT 1 FROM rules_in_force FOR UPDATE', [])
  const present = await isFrozen(queries)
  if (present !== undefined) {
    const detail = `Rule changes have been frozen since ${present.since.toISOString()} by ${present.by}.`
    throw new ProblemError(problem('FROZEN', detail))
  }
  await requireUnderstood(queries, FREEZE_FEATURES)
  await setFreeze(queries, { since: at, by: actor, reason })
  await appendAudit(queries, { actor, action: 'incident.freeze', target: 'rules', diff: {}, reason }, at)
}

async function unfreeze(queries: Queries, reason: string | undefined, actor: string, at: Date): Promise<void> {
  await queries.query('SELECT 1 FROM rules_in_force FOR UPDATE', [])
  const present = await isFrozen(queries)
  if (present === undefined) throw new ProblemError(problem('NOT_FROZEN', 'Rule changes are not frozen.'))
  await setFreeze(queries, undefined)
  const diff = { since: present.since.toISOString(), by: present.by }
  await appendAudit(queries, { actor, action: 'incident.unfreeze', target: 'rules', diff, reason }, at)
}
