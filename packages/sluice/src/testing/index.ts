// `sluice/testing`: what a test of a store, or of anything that is limited, needs. No test framework is imported: the
// contract is handed the one in use.

export type { TestFramework } from './contract-bench.ts'
export { type EtcdProcess, startEtcd } from './etcd-process.ts'
export { type FakeClock, fakeClock } from './fake-clock.ts'
export { type FaultProxy, startFaultProxy } from './fault-proxy.ts'
export { type PostgresProcess, startPostgres } from './postgres-process.ts'
export { type ClusterNode, type ClusterOptions, type RedisCluster, startRedisCluster } from './redis-cluster.ts'
export { type RedisProcess, startRedis } from './redis-process.ts'
export { type SentinelFleet, type SentinelOptions, startSentinels } from './redis-sentinel.ts'
export { type Random, seededRandom } from './seeded-random.ts'
export { type ContractOptions, storeContract } from './store-contract.ts'
