// A real Redis Cluster of its own for a test: every node is born with the map of the whole, so it is up at once instead
// of after seconds of gossip.

import { randomBytes } from 'node:crypto'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SLOTS } from '../redis/slot.ts'
import { freePort } from './free-port.ts'
import { untilRedisSays } from './redis-ask.ts'
import { launchRedis, type RedisProcess } from './redis-process.ts'

export type ClusterNode = RedisProcess & {
  readonly id: string
  /** The id of the primary that it began as a replica of. */
  readonly replicates: string | undefined
}

export type RedisCluster = {
  readonly nodes: readonly ClusterNode[]
  readonly addresses: readonly { readonly host: string; readonly port: number }[]
  stop(): Promise<void>
}

export type ClusterOptions = {
  readonly primaries?: number
  /** Of each primary. */
  readonly replicas?: number
  /** How long a node may be silent before the others take it for dead. */
  readonly nodeTimeoutMs?: number
  readonly args?: readonly string[]
}

type Born = { id: string; port: number; busPort: number; replicates: string | undefined; slots: string; epoch: number }

export async function startRedisCluster(options: ClusterOptions = {}): Promise<RedisCluster> {
  const { nodeTimeoutMs = 1000, args = [] } = options
  const born = await plan(options)
  const started = await Promise.allSettled(
    born.map(async (node): Promise<ClusterNode> => {
      const folder = await mkdtemp(join(tmpdir(), 'sluice-cluster-'))
      await writeFile(join(folder, 'nodes.conf'), mapFor(node, born))
      const cluster = ['--cluster-enabled', 'yes', '--cluster-port', String(node.busPort)]
      const timing = ['--cluster-node-timeout', String(nodeTimeoutMs), '--repl-diskless-sync-delay', '0']
      const { id, port, replicates } = node
      return { ...(await launchRedis(folder, port, [...cluster, ...timing, ...args])), id, replicates }
    }),
  )
  const nodes = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const stop = async () => void (await Promise.all(nodes.map((node) => node.stop())))
  try {
    const failed = started.find((one) => one.status === 'rejected')
    if (failed !== undefined) throw failed.reason
    await Promise.all(nodes.map((node) => untilUp(node)))
  } catch (error) {
    await stop()
    throw error
  }
  return { nodes, addresses: nodes.map(({ port }) => ({ host: '127.0.0.1', port })), stop }
}

async function plan({ primaries = 3, replicas = 0 }: ClusterOptions): Promise<Born[]> {
  const born = async (replicates: string | undefined, slots: string, epoch: number): Promise<Born> => {
    return {
      id: randomBytes(20).toString('hex'),
      port: await freePort(),
      busPort: await freePort(),
      replicates,
      slots,
      epoch,
    }
  }
  const nodes: Born[] = []
  for (let index = 0; index < primaries; index += 1) {
    const first = Math.ceil((index * SLOTS) / primaries)
    const primary = await born(undefined, ` ${first}-${Math.ceil(((index + 1) * SLOTS) / primaries) - 1}`, index + 1)
    nodes.push(primary)
    for (let copy = 0; copy < replicas; copy += 1) nodes.push(await born(primary.id, '', index + 1))
  }
  return nodes
}

/** The file in which a node of a Cluster remembers the others. */
function mapFor(self: Born, nodes: readonly Born[]): string {
  const lines = nodes.map((node) => {
    const role = node.replicates === undefined ? 'master -' : `slave ${node.replicates}`
    const flags = node === self ? `myself,${role}` : role
    return `${node.id} 127.0.0.1:${node.port}@${node.busPort} ${flags} 0 0 ${node.epoch} connected${node.slots}`
  })
  return `${lines.join('\n')}\nvars currentEpoch ${nodes.length} lastVoteEpoch 0\n`
}

async function untilUp({ port, replicates }: ClusterNode): Promise<void> {
  await untilRedisSays(port, 'CLUSTER INFO', 'cluster_state:ok')
  if (replicates !== undefined) await untilRedisSays(port, 'INFO replication', 'master_link_status:up')
}
