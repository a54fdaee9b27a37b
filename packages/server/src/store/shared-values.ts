// Small values that all nodes of one Redis share beside the buckets: receipts of client-chosen ids, the receipt key,
// decisions. Uses a connection of its own without queue and retries.

import type { Cluster, Redis } from 'ioredis'
import { LimiterError } from 'sluice'

export type SharedValues = {
  put(name: string, text: string, ttlMs: number): Promise<void>
  /** Without TTL. Another node may have been first: read it with `get`. */
  putIfAbsent(name: string, text: string): Promise<void>
  /** In the order of the names; undefined where there is no value. Rejects with STORE_UNAVAILABLE. */
  get(...names: readonly string[]): Promise<readonly (string | undefined)[]>
  /** Sets one field of a hash without TTL. */
  putField(hash: string, field: string, text: string): Promise<void>
  removeField(hash: string, field: string): Promise<void>
  fields(hash: string): Promise<Readonly<Record<string, string>>>
  close(): void
}

/** Within the prefix of the store, so that its Redis ACL covers it. */
const PREFIX = 'sl:note:'
/** Deadline of reads, which are rare: refunds and admin requests. */
const READ_MS_MAX = 1000

export function redisValues(client: Redis | Cluster): SharedValues {
  return {
    put: async (name, text, ttlMs) => {
      await client.call('SET', PREFIX + name, text, 'PX', String(Math.ceil(ttlMs)))
    },
    putIfAbsent: async (name, text) => {
      await client.call('SET', PREFIX + name, text, 'NX')
    },
    get: (...names) => {
      // One command per name: in a Cluster the names are in different slots.
      const found = names.map(async (name) => {
        const [text] = (await client.call('MGET', PREFIX + name)) as (string | null)[]
        return text ?? undefined
      })
      return withDeadline(Promise.all(found))
    },
    putField: async (hash, field, text) => {
      await client.call('HSET', PREFIX + hash, field, text)
    },
    removeField: async (hash, field) => {
      await client.call('HDEL', PREFIX + hash, field)
    },
    fields: async (hash) => {
      const flat = (await withDeadline(client.call('HGETALL', PREFIX + hash))) as string[]
      return Object.fromEntries(pairsOf(flat))
    },
    close: () => client.disconnect(),
  }
}

function pairsOf(flat: readonly string[]): [string, string][] {
  return flat.flatMap((name, index) => (index % 2 === 0 ? [[name, flat[index + 1] ?? '']] : []))
}

async function withDeadline<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${READ_MS_MAX} ms`)), READ_MS_MAX)
  })
  try {
    return await Promise.race([work, late])
  } catch (cause) {
    throw new LimiterError('STORE_UNAVAILABLE', (cause as Error).message, { cause })
  } finally {
    clearTimeout(timer)
  }
}
