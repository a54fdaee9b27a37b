// `sluice fleet`: all nodes with their health.

import type { FleetAlert, FleetNode } from '../fleet/fleet.ts'
import { FLEET_PATH } from '../http/routes/fleet.ts'
import { EXIT } from '../process/exit-codes.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { printList } from './list.ts'

type Answer = { readonly nodes: readonly FleetNode[]; readonly alerts: readonly FleetAlert[] }

export const FLEET: Command = defineCommand({
  name: 'fleet',
  summary: 'Lists all nodes with their health, and open alerts.',
  details:
    'Nodes find each other in PostgreSQL, or in Redis if the rules are not in PostgreSQL. --json adds live figures.',
  positionals: [],
  flags: [...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'nodes and alerts', line: 'sluice fleet' }],
  run: async (given, terminal) => {
    const answer = await new Api(given).get<Answer>(FLEET_PATH)
    const rows = answer.nodes.map((node) => [
      node.node,
      node.region ?? '-',
      node.status,
      String(node.rules_version),
      node.version,
      String(node.checks_per_second),
      String(node.refused_per_second),
      node.reasons.join('; '),
    ])
    const header = ['NODE', 'REGION', 'STATUS', 'RULES', 'VERSION', 'CHECKS/S', 'REFUSED/S', 'REASONS']
    printList({ answer, header, rows, none: 'no nodes' }, given, terminal)
    if (!given.has('json')) {
      for (const { node, type, for_seconds: seconds } of answer.alerts) {
        terminal.tell(`alert: ${type} on ${node}, for ${seconds} s\n`)
      }
    }
    return EXIT.done
  },
})
