// Capacity model: computes machines, memory, network and monthly cost for a load from the measured cost of one check.
// Assumes that this cost is the same at any scale, which the run with eight processes verifies.

export type CheckCosts = {
  /** CPU time of the service for one check over HTTP. */
  readonly nodeUs: number
  /** CPU time of Redis for one check. */
  readonly redisUs: number
  /** Bytes between nodes and Redis in both directions for one check. */
  readonly networkBytes: number
  /** Requests to Redis for one check. */
  readonly redisRequests: number
}

/** Content of bench/capacity.json: the load and the prices. */
export type CapacityInputs = {
  readonly requests_per_second: number
  readonly users: number
  readonly rules: number
  /** Target utilization of each core at the peak; the rest is headroom. */
  readonly busy_share: number
  readonly cores_per_node: number
  readonly replicas: number
  /** CPU time of a Cluster primary per request; in a large fleet few requests share a script call. */
  readonly redis_us_per_script: number
  readonly prices: { readonly core_month: number; readonly memory_gb_month: number; readonly network_gb: number }
}

export type Capacity = {
  readonly nodes: number
  /** Also the number of slot groups: a power of two, so that each primary serves one group. */
  readonly primaries: number
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
  const redisUs = Math.max(costs.redisUs, costs.redisRequests * inputs.redis_us_per_script)
  const primaries = 2 ** Math.ceil(Math.log2(Math.max(1, coresFor(redisUs)))) // a Redis has one core
  const memoryGb = (users * bytesPerUser) / BYTES_PER_GB
  const bytesPerSecond = rate * costs.networkBytes
  const copies = 1 + replicas
  return {
    nodes,
    primaries,
    memoryGb,
    networkGbitPerSecond: (bytesPerSecond * 8) / 1e9,
    monthlyCost: {
      nodes: nodes * cores_per_node * prices.core_month,
      redis: primaries * copies * prices.core_month,
      memory: memoryGb * copies * prices.memory_gb_month,
      network: ((bytesPerSecond * SECONDS_PER_MONTH) / BYTES_PER_GB) * prices.network_gb,
    },
  }
}

/** CPU time of a check for a number of Redis requests per check, interpolated between two measurements. */
export function nodeUsAt(redisRequests: number, one: CheckCosts, other: CheckCosts): number {
  const perRequest = (one.nodeUs - other.nodeUs) / (one.redisRequests - other.redisRequests)
  return one.nodeUs + (redisRequests - one.redisRequests) * perRequest
}
