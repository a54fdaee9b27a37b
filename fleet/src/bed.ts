// Everything that a fleet consists of, as real processes on this machine: two regions, each a Redis Cluster with
// service nodes, and a global Redis. All of it is gone, with its folders, when `stop` resolves.

import { fileURLToPath } from 'node:url'
import { type RedisCluster, type RedisProcess, startRedis, startRedisCluster } from 'sluice/testing'
import { ServiceNode } from './service-node.ts'

export type Region = {
  readonly name: string
  readonly cluster: RedisCluster
  /** Those that requests are sent to; a rolling restart replaces them. */
  nodes: readonly ServiceNode[]
}

const WEIGHTS = { eu: 0.6, us: 0.4 }
const RULES = fileURLToPath(new URL('../rules.yaml', import.meta.url))
/** A Cluster that has lost a primary serves the other slots. */
const CLUSTER = { primaries: 3, replicas: 1, args: ['--cluster-require-full-coverage', 'no'] }
/** Everything shares one machine, so nobody is taken for dead in a hurry. */
const DEADLINE_MS = '2000'

export class Bed {
  readonly regions: readonly Region[]
  readonly #global: RedisProcess

  static async start(nodes: number): Promise<Bed> {
    tell('a global Redis')
    const global = await startRedis()
    const regions: Region[] = []
    const bed = new Bed(regions, global)
    try {
      for (const name of Object.keys(WEIGHTS)) {
        tell(`region ${name}: a Redis Cluster of 3 primaries and 3 replicas`)
        const region: Region = { name, cluster: await startRedisCluster(CLUSTER), nodes: [] }
        regions.push(region)
        tell(`region ${name}: ${nodes} service nodes`)
        for (let count = 0; count < nodes; count += 1) region.nodes = [...region.nodes, await bed.startNode(region)]
      }
      return bed
    } catch (error) {
      await bed.stop()
      throw error
    }
  }

  private constructor(regions: readonly Region[], global: RedisProcess) {
    this.regions = regions
    this.#global = global
  }

  /** `main`: another version of the service. */
  startNode({ name, cluster }: Region, main?: string): Promise<ServiceNode> {
    const hosts = cluster.addresses.map(({ host, port }) => `${host}:${port}`)
    const weights = Object.entries(WEIGHTS).map((pair) => pair.join('='))
    const args = [
      ...['--rules', RULES, '--log-level', 'error'],
      ...['--redis', `redis+cluster://${hosts.join(',')}`, '--store-deadline-ms', DEADLINE_MS],
      ...['--region', name, '--region-weights', weights.join(',')],
      ...['--global-redis', this.#global.url, '--global-deadline-ms', DEADLINE_MS],
    ]
    return ServiceNode.start(args, main)
  }

  async stop(): Promise<void> {
    await Promise.all(this.regions.flatMap(({ nodes }) => nodes.map((node) => node.stop())))
    await Promise.all([this.#global.stop(), ...this.regions.map(({ cluster }) => cluster.stop())])
  }
}

function tell(what: string): void {
  process.stderr.write(`starting ${what}\n`)
}
