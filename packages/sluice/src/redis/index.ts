// `sluice/redis`: the store for a fleet.

export type { BatchObserver, ServerName } from './batcher.ts'
export type { IoRedisLike, NodeRedisLike, RedisClient } from './client.ts'
export type { ServerState, ServerTransition } from './guarded-redis.ts'
export type { RedisInfo } from './redis-info.ts'
export { type RedisStore, type RedisStoreOptions, redisStore } from './redis-store.ts'
