// Time until a change of the rules is active on every node: eight nodes on one PostgreSQL, sequential changes, made on
// the nodes in turn.

import { setTimeout as delay } from 'node:timers/promises'
import type { HttpServer } from '../http-server.ts'
import { progress, resultOf } from '../measure.ts'
import type { Scenario } from '../report.ts'
import { change, percentile, RULES_PATH, versionOf, withNodes } from '../rules-node.ts'

const NODES = 8
const CHANGES = 200
const POLL_MS = 2

export const scenario: Scenario = {
  what: `a rule change, until active on ${NODES} nodes`,
  targets: { p99_ms: { atMost: 1000 } },
  run: ({ rounds = CHANGES }) =>
    withNodes(NODES, async (nodes) => {
      const times: number[] = []
      for (let round = 0; round < rounds; round += 1) {
        times.push(...(await propagated(nodes, nodes[round % NODES] as HttpServer, round)))
      }
      progress(`${times.length} measurements: median ${percentile(times, 50)} ms, longest ${Math.max(...times)} ms`)
      const results = [resultOf('one node', times, 'ms'), resultOf('one node, p99', [percentile(times, 99)], 'ms')]
      return { results, ratios: { p99_ms: percentile(times, 99) } }
    }),
}

/** Milliseconds from the request until each node has the change. */
async function propagated(nodes: readonly HttpServer[], writer: HttpServer, round: number): Promise<number[]> {
  const startedMs = performance.now()
  const version = change(writer, 'PATCH', `${RULES_PATH}/demo`, JSON.stringify({ limit: 100 + round }))
  const arrival = async (node: HttpServer) => {
    for (;;) {
      const has = await versionOf(node)
      const elapsedMs = performance.now() - startedMs
      if (has >= (await version)) return elapsedMs
      await delay(POLL_MS)
    }
  }
  return Promise.all(nodes.map(arrival))
}
