// Small texts that all nodes of one Redis share, beside the buckets: receipts of requests that clients have named, the
// key of receipts, decisions. Over a connection of its own, which never queues and never sends again.

import type { Cluster, Redis } from 'ioredis'
import { LimiterError } from 'sluice'

export type SharedNotes = {
  put(name: string, text: string, ttlMs: number): Promise<void>
  /** For good. Another node may have been first: `get` tells. */
  putIfAbsent(name: string, text: string): Promise<void>
  /** In the order of the names; undefined where there is none. Rejects with STORE_UNAVAILABLE. */
  get(...names: readonly string[]): Promise<readonly (string | undefined)[]>
  close(): void
}

/** Under the prefix of the store: a user of Redis who may touch that needs no further rights. */
const PREFIX = 'sl:note:'
/** Reads are rare, and a person or a refund waits for them. */
const READ_MS_MAX = 1000

export function redisNotes(client: Redis | Cluster): SharedNotes {
  return {
    put: async (name, text, ttlMs) => {
      await client.call('SET', PREFIX + name, text, 'PX', String(Math.ceil(ttlMs)))
    },
    putIfAbsent: async (name, text) => {
      await client.call('SET', PREFIX + name, text, 'NX')
    },
    get: (...names) => {
      // One by one: in a Cluster they are in different slots.
      const found = names.map(async (name) => {
        const [text] = (await client.call('MGET', PREFIX + name)) as (string | null)[]
        return text ?? undefined
      })
      return inTime(Promise.all(found))
    },
    close: () => client.disconnect(),
  }
}

async function inTime<T>(work: Promise<T>): Promise<T> {
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
