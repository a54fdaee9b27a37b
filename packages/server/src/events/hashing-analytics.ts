// Queries by plain client keys on stored hashes: hashes the keys of a query as the sink did.

import type { KeyHash } from '../log.ts'
import type { Analytics, Filter } from './analytics.ts'
import { hashedTenant } from './batches.ts'
import { HASHED, hashedName, storable } from './client-key.ts'
import type { ClientKind } from './event.ts'
import type { KeyMode } from './pipeline.ts'
import { PLAN_LENGTH_MAX, TENANT_LENGTH_MAX } from './rollup.ts'

/** A text that is a hash already, copied from an answer, stays as it is. */
export function hashingAnalytics(analytics: Analytics, keys: KeyMode, hash: KeyHash): Analytics {
  const clientName = (kind: ClientKind, name: string) =>
    HASHED.test(name) || (keys === 'clear' && kind !== 'api_key')
      ? storable(name)
      : hashedName(hash, kind, storable(name))
  const hashed = <F extends { readonly tenant?: string | undefined }>(filter: F): F =>
    keys === 'clear' || filter.tenant === undefined || HASHED.test(filter.tenant)
      ? filter
      : { ...filter, tenant: hashedTenant(hash, storable(filter.tenant)) }
  return {
    name: analytics.name,
    timeline: (query) => analytics.timeline({ ...query, filter: hashed(counted(query.filter)) }),
    top: (query) => analytics.top({ ...query, filter: hashed(counted(query.filter)) }),
    refusedClients: (query) => analytics.refusedClients({ ...query, filter: hashed(query.filter) }),
    client: (query) => analytics.client({ ...query, client: clientName(query.kind, query.client) }),
    latency: (query) => analytics.latency(query),
    summary: (query) => analytics.summary({ ...query, filter: hashed(counted(query.filter)) }),
    events: (query) => {
      const { kind, client } = query.filter
      const filter = hashed(query.filter)
      const named =
        kind === undefined || client === undefined ? filter : { ...filter, client: clientName(kind, client) }
      return analytics.events({ ...query, filter: named })
    },
  }
}

/** Truncates names as rollups do. */
function counted({ plan, tenant, ...filter }: Filter): Filter {
  const truncated = (text: string | undefined, lengthMax: number) => text && storable(text, lengthMax)
  return { ...filter, plan: truncated(plan, PLAN_LENGTH_MAX), tenant: truncated(tenant, TENANT_LENGTH_MAX) }
}
