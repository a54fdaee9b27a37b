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
    close: () => client.disconnect(),
  }
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
