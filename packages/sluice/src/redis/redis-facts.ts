// What a Redis says about itself, as far as it concerns limits: how much it holds, and whether it may throw buckets
// away that are in use. A bucket that is evicted is a fresh one, so whoever owns it starts anew.

export type RedisFacts = {
  readonly keys: number
  readonly usedBytes: number
  /** 0: as much as the machine has. */
  readonly maxBytes: number
  readonly policy: string
  /** Whether it drops keys when it is full, instead of refusing to write; every key here has a TTL. */
  readonly mayEvict: boolean
  /** Keys evicted since it started. */
  readonly evictedKeys: number
}

/** Of several primaries: the sums, and the policy that evicts if one does. */
export function factsOf(infos: readonly string[]): RedisFacts {
  const each = infos.map(readInfo)
  const sum = (read: (facts: RedisFacts) => number) => each.reduce((total, facts) => total + read(facts), 0)
  const evicting = each.find(({ mayEvict }) => mayEvict)
  return {
    keys: sum(({ keys }) => keys),
    usedBytes: sum(({ usedBytes }) => usedBytes),
    maxBytes: sum(({ maxBytes }) => maxBytes),
    policy: (evicting ?? each[0])?.policy ?? 'noeviction',
    mayEvict: evicting !== undefined,
    evictedKeys: sum(({ evictedKeys }) => evictedKeys),
  }
}

function readInfo(info: string): RedisFacts {
  const field = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1]
  const maxBytes = Number(field('maxmemory') ?? 0)
  const policy = field('maxmemory_policy') ?? 'noeviction'
  const keys = [...info.matchAll(/^db\d+:keys=(\d+)/gm)].reduce((total, [, count]) => total + Number(count), 0)
  return {
    keys,
    usedBytes: Number(field('used_memory') ?? 0),
    maxBytes,
    policy,
    mayEvict: maxBytes > 0 && policy !== 'noeviction',
    evictedKeys: Number(field('evicted_keys') ?? 0),
  }
}
