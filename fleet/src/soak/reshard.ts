// 1000 slots of a Cluster move between two primaries under load: nobody is decided by on_fail, nothing is lost and
// nothing is charged twice.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ClusterNode } from 'sluice/testing'
import { Bed } from '../bed.ts'
import { ALL } from '../ledger.ts'
import { underLoad } from '../load.ts'
import { percent } from '../table.ts'
import { DRIFT_MAX, type Promised, promisedUnderLoad } from '../verdict.ts'

const SLOTS = 1000
/** Before and after: until shares are found out, and until what moved was used again. */
const SETTLE_MS = 3000
const RATE = 200

export async function reshard(moves: number): Promise<Promised[]> {
  const bed = await Bed.start(1)
  try {
    const [region] = bed.regions
    const [from, to] = region?.cluster.nodes.filter(({ replicates }) => replicates === undefined) ?? []
    if (region === undefined || from === undefined || to === undefined) throw new Error('there are no two primaries')
    let seconds = 0
    const ledger = await underLoad(bed, RATE, async () => {
      await sleep(SETTLE_MS)
      const startedMs = performance.now()
      for (let move = 0; move < moves; move += 1) {
        const [source, target] = move % 2 === 0 ? [from, to] : [to, from]
        await moveSlots(source, target)
      }
      seconds = (performance.now() - startedMs) / 1000
      await sleep(SETTLE_MS)
    })
    const { byPolicy } = ledger.counts(region.name)
    const [own, shared] = [ledger.drift(region.name), ledger.drift(ALL)]
    return [
      ...promisedUnderLoad(ledger, bed.regions),
      {
        kept: byPolicy === 0,
        text: `${SLOTS} slots moved ${moves} times in ${seconds.toFixed(1)} s: ${byPolicy} decisions by on_fail`,
      },
      {
        kept: own >= -DRIFT_MAX && shared >= -DRIFT_MAX,
        text: `nothing charged twice: drift ${percent(own)}, shared ${percent(shared)}`,
      },
    ]
  } finally {
    await bed.stop()
  }
}

async function moveSlots(from: ClusterNode, to: ClusterNode): Promise<void> {
  const what = ['--cluster-from', from.id, '--cluster-to', to.id, '--cluster-slots', String(SLOTS), '--cluster-yes']
  const child = spawn('redis-cli', ['--cluster', 'reshard', `127.0.0.1:${from.port}`, ...what], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  if (code !== 0) throw new Error(`redis-cli --cluster reshard ended with ${code}`)
}
