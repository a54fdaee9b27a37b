// `sluice violations`: recorded refusals of all nodes.

import { VIOLATIONS_PATH } from '../http/routes/violations.ts'
import { EXIT } from '../process/exit-codes.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { afterFlag, limitFlag, pathWith, printList, timeFlag, timeGiven } from './list.ts'

type PlainViolation = {
  readonly bucket_key: string
  readonly user_id: string | null
  readonly ip_address: string | null
  readonly endpoint: string | null
  readonly requested_at: string
  readonly tokens_at_time: number
  readonly rule_id: string | null
}

type Answer = { readonly violations: readonly PlainViolation[]; readonly next: string | null }

export const VIOLATIONS: Command = defineCommand({
  name: 'violations',
  summary: 'Lists recorded refusals, newest first.',
  details: 'Includes all nodes on the database, after about two seconds. Truncates long values, except with --json.',
  positionals: [],
  flags: [
    { name: 'user', value: '<id>', help: 'Only violations of this user; client_id in the HTTP API.' },
    { name: 'ip', value: '<address>', help: 'Only violations from this IP address.' },
    { name: 'rule', value: '<rule_id>', help: 'Only violations of this rule.' },
    timeFlag('since', 'Only violations from this time on.'),
    limitFlag('violations', 50),
    afterFlag(/^\d{1,16}-\d{1,16}$/),
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'who was refused in the last 15 minutes?', line: 'sluice violations --since 15m' },
    { does: 'is this user refused, and by which rule?', line: 'sluice violations --user user_12345' },
    { does: 'for a program', line: 'sluice violations --limit 1000 --json' },
  ],
  run: async (given, terminal) => {
    const path = pathWith(VIOLATIONS_PATH, {
      user_id: given.text('user'),
      ip_address: given.text('ip'),
      rule_id: given.text('rule'),
      since: timeGiven(given, 'since')?.toISOString(),
      after: given.text('after'),
      limit: given.text('limit'),
    })
    const answer = await new Api(given).get<Answer>(path)
    const header = ['AT', 'RULE', 'USER', 'ADDRESS', 'ENDPOINT', 'LEFT', 'BUCKET']
    const rows = answer.violations.map((violation) => [
      violation.requested_at,
      violation.rule_id ?? '',
      violation.user_id ?? '',
      violation.ip_address ?? '',
      violation.endpoint ?? '',
      String(violation.tokens_at_time),
      violation.bucket_key,
    ])
    printList({ answer, header, rows, none: 'no violations found', next: answer.next }, given, terminal)
    return EXIT.done
  },
})
