// Detects nodes that disagree about the number of slot groups: they would keep an owner's bucket under different keys,
// and each would admit the full limit. The first node records its number in Redis, under a key without a TTL; every
// node compares. The record is changed by hand (docs/guides/redis.md).

import type { Connection } from './client.ts'
import type { KeyNames } from './key.ts'
import type { RedisInfo } from './redis-info.ts'

/** Undefined unless Redis is a Cluster. Rejects when Redis does not reply. */
export async function recordSlotGroups(connection: Connection, names: KeyNames): Promise<RedisInfo['slotGroups']> {
  const own = names.groups?.count
  if (own === undefined) return undefined
  const key = names.slotGroupsKey
  const read = async () => {
    const [text] = (await connection.send('MGET', [key], key)) as (string | null)[]
    return text ?? undefined
  }
  const recorded = await read()
  if (recorded !== undefined) return { own, recorded: Number(recorded) }
  await connection.send('SET', [key, String(own), 'NX'], key)
  return { own, recorded: Number((await read()) ?? own) }
}
