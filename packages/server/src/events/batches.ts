// Turns recorded decisions into batches for sinks: with keys in plain text, or with keyed hashes. Hashed batches
// contain no path, only the matched pattern.

import { mapped, type Sliced } from 'sluice'
import type { KeyHash } from '../log.ts'
import { bucketKey } from './bucket-key.ts'
import { hashedName } from './client-key.ts'
import { type Batch, type CountRow, NONE, OTHER } from './event.ts'
import type { Recorded, RecordedEvent } from './recorder.ts'

export function clearBatch({ recorded, ...rollups }: Recorded): Batch {
  return { ...rollups, events: recorded.map(({ event }) => event) }
}

/** Sliced: hashing 10,000 events at once would delay checks by tens of milliseconds. */
export function* hashedBatch({ recorded, counts, clients, ...rollups }: Recorded, hash: KeyHash): Sliced<Batch> {
  return {
    ...rollups,
    counts: yield* mapped(counts, (row): CountRow => ({ ...row, tenant: hashedTenant(hash, row.tenant) })),
    // API keys are hashed already.
    clients: yield* mapped(clients, (row) =>
      row.kind === 'api_key' ? row : { ...row, client: hashedName(hash, row.kind, row.client) },
    ),
    events: yield* mapped(recorded, (one) => hashedEvent(one, hash)),
  }
}

/** Names that stand for several tenants, or none, stay readable. */
export function hashedTenant(hash: KeyHash, tenant: string): string {
  return tenant === OTHER || tenant === NONE ? tenant : hashedName(hash, 'tenant', tenant)
}

function hashedEvent({ event, bucket }: RecordedEvent, hash: KeyHash): Batch['events'][number] {
  const hashed = (fact: string, value: string | null) => (value === null ? null : hashedName(hash, fact, value))
  const { client_id, ip, tenant, endpoint, endpoint_pattern } = event
  return {
    ...event,
    client_id: hashed('user', client_id),
    ip: hashed('ip', ip),
    tenant: hashed('tenant', tenant),
    endpoint: endpoint === null ? null : endpoint_pattern,
    attributes: null,
    bucket_key: bucketKey(bucket, hash),
  }
}
