// Measured costs of one check → machines, memory, network and money for a load. Nothing here is fitted to the load: all
// costs are taken to be the same at any size, which the run of eight processes puts to the test.

export type CheckCosts = {
  /** CPU time of the service for one check over HTTP. */
  readonly nodeUs: number
  /** CPU time of Redis for one check. */
  readonly redisUs: number
  /** Between nodes and Redis, both ways, for one check. */
  readonly networkBytes: number
  /** Requests to Redis for one check. */
  readonly asked: number
}

/** bench/capacity.json: what to plan for, and what things cost. */
export type CapacityInputs = {
  readonly requests_per_second: number
  readonly users: number
  readonly rules: number
  /** Of each core at the peak; the rest is for failures and for peaks above the peak. */
  readonly busy_share: number
  readonly cores_per_node: number
  readonly replicas: number
  readonly prices: { readonly core_month: number; readonly memory_gb_month: number; readonly network_gb: number }
}

export type Capacity = {
  readonly nodes: number
  readonly shards: number
  readonly memoryGb: number
  readonly networkGbitPerSecond: number
  readonly monthlyCost: {
    readonly nodes: number
    readonly redis: number
    readonly memory: number
    readonly network: number
  }
}

const SECONDS_PER_MONTH = 30 * 86_400
const BYTES_PER_GB = 1e9

export function capacityFor(inputs: CapacityInputs, costs: CheckCosts, bytesPerUser: number): Capacity {
  const { requests_per_second: rate, users, busy_share, cores_per_node, replicas, prices } = inputs
  const coresFor = (us: number) => (rate * us) / 1e6 / busy_share
  const nodes = Math.ceil(coresFor(costs.nodeUs) / cores_per_node)
  const shards = Math.max(1, Math.ceil(coresFor(costs.redisUs))) // a Redis has one core
  const memoryGb = (users * bytesPerUser) / BYTES_PER_GB
  const bytesPerSecond = rate * costs.networkBytes
  const copies = 1 + replicas
  return {
    nodes,
    shards,
    memoryGb,
    networkGbitPerSecond: (bytesPerSecond * 8) / 1e9,
    monthlyCost: {
      nodes: nodes * cores_per_node * prices.core_month,
      redis: shards * copies * prices.core_month,
      memory: memoryGb * copies * prices.memory_gb_month,
      network: ((bytesPerSecond * SECONDS_PER_MONTH) / BYTES_PER_GB) * prices.network_gb,
    },
  }
}

/** What a check costs a node that asks Redis so often, by the line through two measured points. */
export function nodeUsAt(asked: number, one: CheckCosts, other: CheckCosts): number {
  const perAsked = (one.nodeUs - other.nodeUs) / (one.asked - other.asked)
  return one.nodeUs + (asked - one.asked) * perAsked
}
