import { expect, test } from 'vitest'
import { capacityFor, nodeUsAt } from './capacity-model.ts'

const INPUTS = {
  requests_per_second: 1000,
  users: 1_000_000,
  rules: 5,
  busy_share: 0.5,
  cores_per_node: 2,
  replicas: 1,
  prices: { core_month: 10, memory_gb_month: 2, network_gb: 0.01 },
}
const COSTS = { nodeUs: 4000, redisUs: 1000, networkBytes: 1000, asked: 1 }

test('a load is carried at the planned share of each core', () => {
  const { nodes, shards, memoryGb, networkGbitPerSecond } = capacityFor(INPUTS, COSTS, 1000)
  expect([nodes, shards, memoryGb, networkGbitPerSecond]).toEqual([4, 2, 1, 0.008])
})

test('the bill has a line for nodes, for Redis with its replicas, for memory and for the network', () => {
  const { monthlyCost } = capacityFor(INPUTS, COSTS, 1000)
  expect(monthlyCost).toEqual({ nodes: 80, redis: 40, memory: 4, network: 25.92 })
})

test('what asking costs is told apart from what deciding costs', () => {
  const seldom = { ...COSTS, asked: 0.2, nodeUs: 60 }
  const always = { ...COSTS, asked: 1, nodeUs: 100 }
  expect(nodeUsAt(0.6, always, seldom)).toBeCloseTo(80)
})
