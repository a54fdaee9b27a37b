// Moves 1000 slots of a Cluster between two primaries under load: no decision by on_fail, no lost request and no double
// charge.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ClusterNode } from 'sluice/testing'
import { DRIFT_MAX, type Guarantee, loadGuarantees } from '../guarantees.ts'
import { ALL } from '../ledger.ts'
import { underLoad } from '../load.ts'
import { percent } from '../table.ts'
import { Testbed } from '../testbed.ts'

const SLOTS = 1000
/** Load before and after the move, so that shares settle and moved buckets are used again. */
const SETTLE_MS = 3000
const RATE = 200

export async function reshard(moves: number): Promise<Guarantee[]> {
  const testbed = await Testbed.start(1)
  try {
    const [region] = testbed.regions
    const [from, to] = region?.cluster.nodes.filter(({ replicates }) => replicates === undefined) ?? []
    if (region === undefined || from === undefined || to === undefined) throw new Error('fewer than two primaries')
    let seconds = 0
    const ledger = await underLoad(testbed, RATE, async () => {
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
      ...loadGuarantees(ledger, testbed.regions),
      {
        held: byPolicy === 0,
        text: `${SLOTS} slots moved ${moves} times in ${seconds.toFixed(1)} s: ${byPolicy} decisions by on_fail`,
      },
      {
        held: own >= -DRIFT_MAX && shared >= -DRIFT_MAX,
        text: `no double charge: drift ${percent(own)}, shared ${percent(shared)}`,
      },
    ]
  } finally {
    await testbed.stop()
  }
}

async function moveSlots(from: ClusterNode, to: ClusterNode): Promise<void> {
  const options = ['--cluster-from', from.id, '--cluster-to', to.id, '--cluster-slots', String(SLOTS), '--cluster-yes']
  const child = spawn('redis-cli', ['--cluster', 'reshard', `127.0.0.1:${from.port}`, ...options], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  if (code !== 0) throw new Error(`redis-cli --cluster reshard exited with ${code}`)
}
