// Every service node is replaced under load, one after the other, by one of another version with another script: nobody
// notices. Requests are spread as a load balancer does it that looks at /readyz.

import { setTimeout as sleep } from 'node:timers/promises'
import { Bed, type Region } from '../bed.ts'
import { underLoad } from '../load.ts'
import { otherVersion } from '../other-version.ts'
import type { ServiceNode } from '../service-node.ts'
import { type Promised, promisedUnderLoad } from '../verdict.ts'

/** How often the load balancer looks; a node drains for longer. */
const LOOK_MS = 100
const RATE = 200

export async function rollingRestart(nodes: number): Promise<Promised[]> {
  const bed = await Bed.start(nodes)
  try {
    const main = await otherVersion()
    const old = bed.regions.flatMap((region) => region.nodes.map((node) => ({ region, node })))
    const ledger = await underLoad(bed, RATE, async () => {
      for (const { region, node } of old) await replace(bed, region, node, main)
    })
    return [
      ...promisedUnderLoad(ledger, bed.regions),
      {
        kept: old.every(({ region, node }) => !region.nodes.includes(node)),
        text: `${old.length} nodes were replaced by ones with another script`,
      },
    ]
  } finally {
    await bed.stop()
  }
}

async function replace(bed: Bed, region: Region, old: ServiceNode, main: string): Promise<void> {
  region.nodes = [...region.nodes, await bed.startNode(region, main)]
  const ended = old.drain()
  while ((await old.health()).status !== 'draining') await sleep(LOOK_MS)
  region.nodes = region.nodes.filter((node) => node !== old)
  await ended
}
