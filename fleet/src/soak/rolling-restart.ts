// Replaces every service node under load, one after the other, with one that has different scripts: no request fails.
// Requests are routed as by a load balancer that polls /readyz.

import { setTimeout as sleep } from 'node:timers/promises'
import { type Guarantee, loadGuarantees } from '../guarantees.ts'
import { underLoad } from '../load.ts'
import { otherVersion } from '../other-version.ts'
import type { ServiceNode } from '../service-node.ts'
import { type Region, Testbed } from '../testbed.ts'

/** Poll interval of the load balancer; a node drains for longer. */
const POLL_MS = 100
const RATE = 200

export async function rollingRestart(nodes: number): Promise<Guarantee[]> {
  const testbed = await Testbed.start(nodes)
  try {
    const main = await otherVersion()
    const old = testbed.regions.flatMap((region) => region.nodes.map((node) => ({ region, node })))
    const ledger = await underLoad(testbed, RATE, async () => {
      for (const { region, node } of old) await replace(testbed, region, node, main)
    })
    return [
      ...loadGuarantees(ledger, testbed.regions),
      {
        held: old.every(({ region, node }) => !region.nodes.includes(node)),
        text: `${old.length} nodes were replaced by nodes with other scripts`,
      },
    ]
  } finally {
    await testbed.stop()
  }
}

async function replace(testbed: Testbed, region: Region, old: ServiceNode, main: string): Promise<void> {
  region.nodes = [...region.nodes, await testbed.startNode(region, main)]
  const ended = old.drain()
  while ((await old.health()).status !== 'draining') await sleep(POLL_MS)
  region.nodes = region.nodes.filter((node) => node !== old)
  await ended
}
