// The parts of INFO that matter for limits: keys, memory, and whether Redis may evict live buckets. Eviction resets a
// bucket, so its owner gets the full limit again.

export type RedisInfo = {
  /** 1, unless it is a Cluster. */
  readonly primaries: number
  /** Numbers of slot groups on this node and as recorded in Redis; they must be equal. Undefined unless a Cluster. */
  readonly slotGroups: { readonly own: number; readonly recorded: number } | undefined
  readonly keys: number
  readonly usedBytes: number
  /** `maxmemory`; 0: no limit. */
  readonly maxBytes: number
  readonly policy: string
  /** Whether it evicts keys when it is full instead of rejecting writes. Any bucket may be evicted: all have a TTL. */
  readonly mayEvict: boolean
  /** Keys evicted since it started. */
  readonly evictedKeys: number
  /** Commands per second, as Redis measures them. */
  readonly commandsPerSecond: number
}

/** Sums over the primaries; `policy` is that of a primary that evicts, if any does. */
export function redisInfo(infos: readonly string[], slotGroups: RedisInfo['slotGroups']): RedisInfo {
  const each = infos.map(readInfo)
  const sum = (read: (facts: PrimaryInfo) => number) => each.reduce((total, facts) => total + read(facts), 0)
  const evicting = each.find(({ mayEvict }) => mayEvict)
  return {
    primaries: infos.length,
    slotGroups,
    keys: sum(({ keys }) => keys),
    usedBytes: sum(({ usedBytes }) => usedBytes),
    maxBytes: sum(({ maxBytes }) => maxBytes),
    policy: (evicting ?? each[0])?.policy ?? 'noeviction',
    mayEvict: evicting !== undefined,
    evictedKeys: sum(({ evictedKeys }) => evictedKeys),
    commandsPerSecond: sum(({ commandsPerSecond }) => commandsPerSecond),
  }
}

type PrimaryInfo = Omit<RedisInfo, 'primaries' | 'slotGroups'>

function readInfo(info: string): PrimaryInfo {
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
    commandsPerSecond: Number(field('instantaneous_ops_per_sec') ?? 0),
  }
}
