// `sluice signals list`, `send` and `remove`: abuse signals.

import { SEVERITIES } from 'sluice'
import { SIGNALS_PATH, type SignalAccepted, type SignalList } from '../http/routes/signals.ts'
import { EXIT } from '../process/exit-codes.ts'
import { durationMs } from '../text/duration.ts'
import { Api, SERVER_FLAGS, WHEN_READY_FLAG } from './api.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { confirm, REASON_FLAG, YES_FLAG } from './confirm.ts'
import { remove, required, tellWarnings } from './exception-flags.ts'
import { actorText, afterFlag, limitFlag, pathWith, printList } from './list.ts'

export const SIGNALS_LIST: Command = defineCommand({
  name: 'signals list',
  summary: 'Lists abuse signals in force, newest first.',
  positionals: [],
  flags: [
    { name: 'key', value: '<fact:value>', help: 'Only signals of this key, such as user:alice.' },
    { name: 'kind', value: '<kind>', help: 'Only signals of this kind.' },
    limitFlag('signals', 100),
    afterFlag(/^sig_[0-9a-f]{8,32}$/),
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [{ does: 'who is suspected?', line: 'sluice signals list' }],
  run: async (given, terminal) => {
    const parameters = {
      key: given.text('key'),
      kind: given.text('kind'),
      limit: given.text('limit'),
      after: given.text('after'),
    }
    const answer = await new Api(given).get<SignalList>(pathWith(SIGNALS_PATH, parameters))
    const rows = answer.signals.map((signal) => [
      signal.signal_id,
      signal.key,
      signal.kind,
      signal.severity,
      signal.expires_at,
      signal.source ?? '',
      actorText(signal.by, signal.by_name),
    ])
    const header = ['SIGNAL', 'KEY', 'KIND', 'SEVERITY', 'UNTIL', 'SOURCE', 'BY']
    printList({ answer, header, rows, none: 'no signals', next: answer.next }, given, terminal)
    return EXIT.done
  },
})

export const SIGNALS_SEND: Command = defineCommand({
  name: 'signals send',
  summary: 'Reports suspected abuse by a key.',
  details:
    'Rules that list the kind in on_signal tighten for the key until the signal expires. Requires a token with the ' +
    'role editor.',
  positionals: [{ name: '<key>', help: 'fact and value, such as ip:203.0.113.42' }],
  flags: [
    { name: 'kind', value: '<kind>', help: 'Kind of abuse, such as credential_stuffing. Required.' },
    { name: 'severity', value: '<severity>', help: 'How serious it is.', choices: SEVERITIES, fallback: 'medium' },
    {
      name: 'ttl',
      value: '<duration>',
      help: 'Lifetime, such as 10m.',
      fallback: '10m',
      accepts: (text) => durationMs(text) !== undefined,
      fix: 'give a duration such as 30s, 10m or 1h',
    },
    { name: 'source', value: '<name>', help: 'System that found it.' },
    WHEN_READY_FLAG,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    {
      does: 'from a log analysis',
      line: 'sluice signals send ip:203.0.113.42 --kind credential_stuffing --severity high --ttl 1h',
    },
  ],
  run: async (given, terminal) => {
    const sent = await new Api(given, terminal).post<SignalAccepted>(SIGNALS_PATH, {
      key: given.positionals[0],
      kind: required(given, 'kind', 'a kind of abuse, such as credential_stuffing'),
      severity: given.text('severity'),
      ttl_seconds: (durationMs(given.text('ttl') ?? '') ?? 0) / 1000,
      source: given.text('source'),
    })
    terminal.out(given.has('json') ? `${JSON.stringify(sent, null, 2)}\n` : `${sent.signal_id}\n`)
    terminal.tell(`accepted, until ${sent.expires_at}\n`)
    tellWarnings(terminal, sent.warnings)
    return EXIT.done
  },
})

export const SIGNALS_REMOVE: Command = defineCommand({
  name: 'signals remove',
  summary: 'Removes a signal before it expires.',
  positionals: [{ name: '<signal_id>', help: 'the id of a signal, from sluice signals list' }],
  flags: [REASON_FLAG, YES_FLAG, ...SERVER_FLAGS],
  examples: [{ does: 'a false alarm', line: 'sluice signals remove sig_018bcfe568a1b2c3d4e5f607 --yes' }],
  run: async (given, terminal) => {
    await confirm(given, terminal, 'Remove this signal?')
    await remove(new Api(given), given, `${SIGNALS_PATH}/${encodeURIComponent(given.positionals[0] ?? '')}`)
    terminal.tell('removed\n')
    return EXIT.done
  },
})
