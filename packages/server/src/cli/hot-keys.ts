// `sluice hot-keys`: keys with the most checks on a node.

import type { ApiHotKey } from '../fleet/api-hot-key.ts'
import { HOT_KEYS_PATH } from '../http/routes/hot-keys.ts'
import { EXIT } from '../process/exit-codes.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { limitFlag, pathWith, printList } from './list.ts'

const NONE =
  'no hot keys: no key got at least 1 % of the checks of the last half minute, or there were too few checks to tell'

export const HOT_KEYS: Command = defineCommand({
  name: 'hot-keys',
  summary: 'Lists the keys with the most checks on a node.',
  details: 'Estimated from one check in 128, over about 30 seconds. Clients appear as the keyed hashes of the log.',
  positionals: [],
  flags: [limitFlag('keys', 20), ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'the five hottest keys', line: 'sluice hot-keys --limit 5' }],
  run: async (given, terminal) => {
    const path = pathWith(HOT_KEYS_PATH, { limit: given.text('limit') })
    const answer = await new Api(given).get<{ hot_keys: readonly ApiHotKey[] }>(path)
    const rows = answer.hot_keys.map(({ rule_id: ruleId, name, key_hash: hash, checks_per_second: rate, share }) => {
      return [ruleId, name, hash, String(rate), `${(share * 100).toFixed(1)} %`]
    })
    const header = ['RULE', 'LIMIT', 'KEY HASH', 'CHECKS/S', 'SHARE']
    printList({ answer, header, rows, none: NONE }, given, terminal)
    return EXIT.done
  },
})
