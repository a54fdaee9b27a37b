// `sluice/testing`: helpers for tests of stores and of rate-limited code. Imports no test framework; the contract
// receives the one in use.

export {
  CLICKHOUSE_PASSWORD,
  CLICKHOUSE_USER,
  type ClickHouseProcess,
  clickHouseMissing,
  startClickHouse,
} from './clickhouse-process.ts'
export type { TestFramework } from './contract-fixture.ts'
export { type EtcdProcess, startEtcd } from './etcd-process.ts'
export { type FakeClock, fakeClock } from './fake-clock.ts'
export { type FaultProxy, startFaultProxy } from './fault-proxy.ts'
export { type KafkaProcess, kafkaMissing, startKafka } from './kafka-process.ts'
export { type PostgresProcess, startPostgres } from './postgres-process.ts'
export { type ClusterNode, type ClusterOptions, type RedisCluster, startRedisCluster } from './redis-cluster.ts'
export { type RedisProcess, startRedis } from './redis-process.ts'
export { type SentinelFleet, type SentinelOptions, startSentinels } from './redis-sentinel.ts'
export { type Random, seededRandom } from './seeded-random.ts'
export { type ContractOptions, storeContract } from './store-contract.ts'
