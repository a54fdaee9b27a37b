// Starts a real Redis Cluster for a test. Every node starts with the complete cluster map, so it is ready without
// seconds of gossip.

import { randomBytes } from 'node:crypto'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SLOTS } from '../redis/slot.ts'
import { freePort } from './free-port.ts'
import { untilRedisReplies } from './redis-command.ts'
import { launchRedis, type RedisProcess } from './redis-process.ts'

export type ClusterNode = RedisProcess & {
  readonly id: string
  /** Id of the primary that it initially replicates. */
  readonly replicates: string | undefined
}

export type RedisCluster = {
  readonly nodes: readonly ClusterNode[]
  readonly addresses: readonly { readonly host: string; readonly port: number }[]
  stop(): Promise<void>
}

export type ClusterOptions = {
  readonly primaries?: number
  /** Per primary. */
  readonly replicas?: number
  /** Silence after which other nodes consider a node dead. */
  readonly nodeTimeoutMs?: number
  readonly args?: readonly string[]
}

type NodePlan = {
  id: string
  port: number
  busPort: number
  replicates: string | undefined
  slots: string
  epoch: number
}

export async function startRedisCluster(options: ClusterOptions = {}): Promise<RedisCluster> {
  const { nodeTimeoutMs = 1000, args = [] } = options
  const planned = await planNodes(options)
  const started = await Promise.allSettled(
    planned.map(async (node): Promise<ClusterNode> => {
      const folder = await mkdtemp(join(tmpdir(), 'sluice-cluster-'))
      await writeFile(join(folder, 'nodes.conf'), nodesConf(node, planned))
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

async function planNodes({ primaries = 3, replicas = 0 }: ClusterOptions): Promise<NodePlan[]> {
  const nodePlan = async (replicates: string | undefined, slots: string, epoch: number): Promise<NodePlan> => {
    return {
      id: randomBytes(20).toString('hex'),
      port: await freePort(),
      busPort: await freePort(),
      replicates,
      slots,
      epoch,
    }
  }
  const nodes: NodePlan[] = []
  for (let index = 0; index < primaries; index += 1) {
    const first = Math.ceil((index * SLOTS) / primaries)
    const primary = await nodePlan(
      undefined,
      ` ${first}-${Math.ceil(((index + 1) * SLOTS) / primaries) - 1}`,
      index + 1,
    )
    nodes.push(primary)
    for (let copy = 0; copy < replicas; copy += 1) nodes.push(await nodePlan(primary.id, '', index + 1))
  }
  return nodes
}

/** The nodes.conf of a node. */
function nodesConf(self: NodePlan, nodes: readonly NodePlan[]): string {
  const lines = nodes.map((node) => {
    const role = node.replicates === undefined ? 'master -' : `slave ${node.replicates}`
    const flags = node === self ? `myself,${role}` : role
    return `${node.id} 127.0.0.1:${node.port}@${node.busPort} ${flags} 0 0 ${node.epoch} connected${node.slots}`
  })
  return `${lines.join('\n')}\nvars currentEpoch ${nodes.length} lastVoteEpoch 0\n`
}

async function untilUp({ port, replicates }: ClusterNode): Promise<void> {
  await untilRedisReplies(port, 'CLUSTER INFO', 'cluster_state:ok')
  if (replicates !== undefined) await untilRedisReplies(port, 'INFO replication', 'master_link_status:up')
}
