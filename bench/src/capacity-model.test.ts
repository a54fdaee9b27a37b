import { expect, test } from 'vitest'
import { capacityFor, nodeUsAt } from './capacity-model.ts'

const INPUTS = {
  requests_per_second: 1000,
  users: 1_000_000,
  rules: 5,
  busy_share: 0.5,
  cores_per_node: 2,
  replicas: 1,
  redis_us_per_script: 1500,
  prices: { core_month: 10, memory_gb_month: 2, network_gb: 0.01 },
}
const COSTS = { nodeUs: 4000, redisUs: 1000, networkBytes: 1000, redisRequests: 1 }

test('a load uses the planned share of each core', () => {
  const { nodes, primaries, memoryGb, networkGbitPerSecond } = capacityFor(INPUTS, COSTS, 1000)
  expect([nodes, primaries, memoryGb, networkGbitPerSecond]).toEqual([4, 4, 1, 0.008])
})

test('the monthly cost covers nodes, Redis with its replicas, memory and network', () => {
  const { monthlyCost } = capacityFor(INPUTS, COSTS, 1000)
  expect(monthlyCost).toEqual({ nodes: 80, redis: 80, memory: 4, network: 25.92 })
})

test('the cost of a Redis request is separated from the cost of a decision', () => {
  const seldom = { ...COSTS, redisRequests: 0.2, nodeUs: 60 }
  const always = { ...COSTS, redisRequests: 1, nodeUs: 100 }
  expect(nodeUsAt(0.6, always, seldom)).toBeCloseTo(80)
})
