// Starts a fleet as real processes on this machine: two regions, each a Redis Cluster with service nodes, and a global
// Redis. `stop` ends all processes and removes their folders.

import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type RedisCluster, type RedisProcess, startRedis, startRedisCluster } from 'sluice/testing'
import { RULES_PATH } from './rules.ts'
import { ServiceNode } from './service-node.ts'

export type Region = {
  readonly name: string
  readonly cluster: RedisCluster
  /** Targets of the load; a rolling restart replaces them. */
  nodes: readonly ServiceNode[]
}

const WEIGHTS = { eu: 0.6, us: 0.4 }
/** Without full coverage, a Cluster that lost a primary still serves the other slots. */
const CLUSTER = { primaries: 3, replicas: 1, args: ['--cluster-require-full-coverage', 'no'] }
/** Generous, because all processes share one machine. */
const DEADLINE_MS = '2000'

export class Testbed {
  readonly regions: readonly Region[]
  readonly #global: RedisProcess

  static async start(nodes: number): Promise<Testbed> {
    report('a global Redis')
    const global = await startRedis()
    const regions: Region[] = []
    const testbed = new Testbed(regions, global)
    try {
      for (const name of Object.keys(WEIGHTS)) {
        report(`region ${name}: a Redis Cluster of 3 primaries and 3 replicas`)
        const region: Region = { name, cluster: await startRedisCluster(CLUSTER), nodes: [] }
        regions.push(region)
        report(`region ${name}: ${nodes} service nodes`)
        for (let count = 0; count < nodes; count += 1) region.nodes = [...region.nodes, await testbed.startNode(region)]
      }
      return testbed
    } catch (error) {
      await testbed.stop()
      throw error
    }
  }

  private constructor(regions: readonly Region[], global: RedisProcess) {
    this.regions = regions
    this.#global = global
  }

  /** `main` is the entry file of another version of the service. */
  startNode({ name, cluster }: Region, main?: string): Promise<ServiceNode> {
    const hosts = cluster.addresses.map(({ host, port }) => `${host}:${port}`)
    const weights = Object.entries(WEIGHTS).map((pair) => pair.join('='))
    const args = [
      ...['--rules', RULES_PATH, '--log-level', 'error', '--data-dir', mkdtempSync(join(tmpdir(), 'sluice-node-'))],
      ...['--redis', `redis+cluster://${hosts.join(',')}`, '--store-deadline-ms', DEADLINE_MS],
      ...['--region', name, '--region-weights', weights.join(',')],
      ...['--global-redis', this.#global.url, '--global-deadline-ms', DEADLINE_MS],
    ]
    return ServiceNode.start(args, { main })
  }

  async stop(): Promise<void> {
    await Promise.all(this.regions.flatMap(({ nodes }) => nodes.map((node) => node.stop())))
    await Promise.all([this.#global.stop(), ...this.regions.map(({ cluster }) => cluster.stop())])
  }
}

function report(step: string): void {
  process.stderr.write(`starting ${step}\n`)
}
