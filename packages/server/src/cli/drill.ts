// `sluice drill store-down --seconds 30`: asks a running node to rehearse an outage.

import { DRILL_PATH } from '../http/routes/drill.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import { type Command, defineCommand, EXIT } from './command.ts'

export const DRILL: Command = defineCommand({
  name: 'drill',
  summary: 'Rehearses an outage of Redis.',
  details: 'The node leaves Redis alone for a while, and every rule does what its on_fail says.',
  positionals: [{ name: '<what>', help: 'what to rehearse: store-down', choices: ['store-down'] }],
  flags: [
    {
      name: 'seconds',
      value: '<number>',
      help: 'How long; 0 ends a drill.',
      fallback: '30',
      accepts: (text) => /^\d{1,4}$/.test(text) && Number(text) <= 3600,
      fix: 'give a whole number from 0 to 3600',
    },
    {
      name: 'reason',
      value: '<text>',
      help: 'Why, for the audit.',
      accepts: (text) => text !== '' && text.length <= 1024,
      fix: 'give 1 to 1024 characters',
    },
    ...SERVER_FLAGS,
  ],
  examples: [{ does: 'half a minute without Redis', line: 'sluice drill store-down --seconds 30' }],
  run: async (given, terminal) => {
    const api = new Api(given)
    const wanted = { seconds: Number(given.text('seconds')), reason: given.text('reason') }
    const { seconds } = await api.post<{ seconds: number }>(DRILL_PATH, wanted)
    terminal.tell(`Redis is left alone for ${seconds} s by ${api.url}\n`)
    return EXIT.done
  },
})
