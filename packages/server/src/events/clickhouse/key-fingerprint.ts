// Fingerprint of the key secret in ClickHouse. Nodes that share it need no common database, so it is the only place
// where they can notice that their hashes differ.

import type { CompareSecret } from '../key-secret.ts'
import type { ClickHouse } from './client.ts'
import { type ClickHouseSchema, FINGERPRINTS } from './schema.ts'
import { literal } from './sql-text.ts'

/** Two nodes that ask first at the same moment may both store theirs; the later reader then notices the difference. */
export function compareInClickHouse(client: ClickHouse, schema: ClickHouseSchema): CompareSecret {
  const table = `${client.database}.${FINGERPRINTS}`
  const stored = () => client.query<{ fingerprint: string }>(`SELECT DISTINCT fingerprint FROM ${table} LIMIT 2`)
  return async (fingerprint) => {
    await schema.ready()
    // Reads first: a node that only queries may have no right to insert.
    let rows = await stored()
    if (rows.length === 0) {
      const isFirst = `(SELECT count() FROM ${table}) = 0`
      await client.command(
        `INSERT INTO ${table} (fingerprint, stored_at) SELECT ${literal(fingerprint)}, now() WHERE ${isFirst}`,
      )
      rows = await stored()
    }
    return rows.every((row) => row.fingerprint === fingerprint)
  }
}
