// `sluice drill store-down --seconds 30`: simulates an outage of Redis on a running node.

import { DRILL_PATH } from '../http/routes/drill.ts'
import { EXIT } from '../process/exit-codes.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import { type Command, defineCommand } from './command.ts'
import { REASON_FLAG } from './confirm.ts'

export const DRILL: Command = defineCommand({
  name: 'drill',
  summary: 'Simulates an outage of Redis.',
  details: 'The node keeps its circuit breakers open, so that the on_fail of each rule applies.',
  positionals: [{ name: '<outage>', help: 'the outage to simulate: store-down', choices: ['store-down'] }],
  flags: [
    {
      name: 'seconds',
      value: '<number>',
      help: 'Duration of the drill; 0 ends a running one.',
      fallback: '30',
      accepts: (text) => /^\d{1,4}$/.test(text) && Number(text) <= 3600,
      fix: 'give a whole number from 0 to 3600',
    },
    REASON_FLAG,
    ...SERVER_FLAGS,
  ],
  examples: [{ does: 'half a minute without Redis', line: 'sluice drill store-down --seconds 30' }],
  run: async (given, terminal) => {
    const api = new Api(given)
    const body = { seconds: Number(given.text('seconds')), reason: given.text('reason') }
    const { seconds } = await api.post<{ seconds: number }>(DRILL_PATH, body)
    const state = seconds === 0 ? 'drill ended' : `drill started for ${seconds} s`
    terminal.tell(`${api.url}: ${state}\n`)
    return EXIT.done
  },
})
