// `sluice overrides list`, `set`, `remove` and `approve`: raises or lowers limits of one key, exempts it or bans it.

import {
  OVERRIDES_PATH,
  type OverrideCreated,
  type OverrideList,
  type PlainOverride,
} from '../http/routes/overrides.ts'
import { EXIT } from '../process/exit-codes.ts'
import { escaped } from '../text/escaped.ts'
import { Api, SERVER_FLAGS, WHEN_READY_FLAG } from './api.ts'
import type { Given } from './arguments.ts'
import { effectText } from './check-text.ts'
import { type Command, defineCommand, OUTPUT_FLAGS, type Positional } from './command.ts'
import { confirm, DRY_RUN_FLAG, REASON_FLAG, unconfirmable, YES_FLAG } from './confirm.ts'
import { approve, lifetimeFlag, missing, remove, tellWarnings, waitText } from './exception-flags.ts'
import { actorText, afterFlag, limitFlag, pathWith, printList } from './list.ts'

const OVERRIDE_ID: Positional = { name: '<override_id>', help: 'the id of an override, from sluice overrides list' }
const EFFECT_FLAGS = ['limit', 'factor', 'ban', 'exempt'] as const

export const OVERRIDES_LIST: Command = defineCommand({
  name: 'overrides list',
  summary: 'Lists overrides, newest first.',
  details: 'Expired ones are left out. Requires a token with the role viewer.',
  positionals: [],
  flags: [
    { name: 'rule', value: '<rule_id>', help: 'Only overrides of this rule.' },
    { name: 'key', value: '<fact:value>', help: 'Only overrides of this key, such as user:alice.' },
    limitFlag('overrides', 100),
    afterFlag(/^ovr_[0-9a-f]{8,32}$/),
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'all', line: 'sluice overrides list' },
    { does: 'of one user', line: 'sluice overrides list --key user:alice' },
  ],
  run: async (given, terminal) => {
    const parameters = {
      rule_id: given.text('rule'),
      key: given.text('key'),
      limit: given.text('limit'),
      after: given.text('after'),
    }
    const answer = await new Api(given).get<OverrideList>(pathWith(OVERRIDES_PATH, parameters))
    const rows = answer.overrides.map((override) => [
      override.override_id,
      override.rule_id ?? '(all rules)',
      override.key,
      effectText(override),
      untilText(override),
      actorText(override.by, override.by_name),
      override.reason,
    ])
    const header = ['OVERRIDE', 'RULE', 'KEY', 'EFFECT', 'UNTIL', 'BY', 'REASON']
    printList({ answer, header, rows, none: 'no overrides', next: answer.next }, given, terminal)
    return EXIT.done
  },
})

function untilText({ state, expires_at: ends }: PlainOverride): string {
  const until = ends ?? 'forever'
  return state === 'pending' ? `${until} (pending)` : until
}

export const OVERRIDES_SET: Command = defineCommand({
  name: 'overrides set',
  summary: 'Raises or lowers the limits of one key, exempts it, or bans it.',
  details:
    'Takes effect on all nodes within a second; replaces an earlier override of the same rule, key and limit. Asks ' +
    'for confirmation. Requires a token with the role editor. Only the id goes to standard output.',
  positionals: [
    {
      name: '<key>',
      help: 'with --rule, the value of the first fact of its scope; otherwise fact and value, such as user:alice',
    },
  ],
  flags: [
    { name: 'rule', value: '<rule_id>', help: 'Rule to override.', shownFallback: 'every rule of the key' },
    {
      name: 'limit',
      value: '<units>',
      help: 'Replace the limit.',
      accepts: (text) => /^[1-9]\d{0,12}$/.test(text),
      fix: 'give a whole number from 1; to refuse every request, use --ban',
    },
    { name: 'limit-name', value: '<name>', help: 'Limit that --limit replaces, if the rule has several.' },
    {
      name: 'factor',
      value: '<number>',
      help: 'Multiply every limit, such as 2 or 0.5.',
      accepts: (text) => /^\d+(\.\d+)?$/.test(text) && Number(text) > 0 && Number(text) <= 1000,
      fix: 'give a number above 0 and at most 1000',
    },
    { name: 'ban', help: 'Refuse every request of the key.' },
    { name: 'status', value: '<status>', help: 'Status of a ban.', choices: ['429', '403'], shownFallback: '429' },
    { name: 'exempt', help: 'Do not apply the rule to the key.' },
    lifetimeFlag('When it ends, such as 30m, 12h or 7d. Required, unless --forever is given.'),
    { name: 'forever', help: 'Until it is removed.' },
    REASON_FLAG,
    YES_FLAG,
    DRY_RUN_FLAG,
    WHEN_READY_FLAG,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    {
      does: 'a higher limit for a day',
      line: 'sluice overrides set alice --rule messages --limit 500 --expires-in 1d --reason "ticket 4711"',
    },
    { does: 'a ban', line: 'sluice overrides set ip:203.0.113.42 --ban --expires-in 1h --reason "scraping" --yes' },
  ],
  mistakes: (given, terminal) => [...mistakesIn(given), ...unconfirmable(given, terminal)],
  run: async (given, terminal) => {
    const body = bodyOf(given)
    const what = `${given.text('rule') ?? 'all rules'}, key ${escaped(given.positionals[0] ?? '')}`
    const shown = `${what}: ${describe(given)}`
    if (given.has('dry-run')) {
      terminal.tell(`would set an override of ${shown}\n`)
      return EXIT.done
    }
    await confirm(given, terminal, `Set an override of ${shown}?`)
    const made = await new Api(given, terminal).post<OverrideCreated>(OVERRIDES_PATH, body)
    terminal.out(given.has('json') ? `${JSON.stringify(made, null, 2)}\n` : `${made.override_id}\n`)
    const until = made.expires_at === null ? 'until it is removed' : `until ${made.expires_at}`
    const replaced = made.replaced === undefined ? '' : `; it replaces ${made.replaced.join(', ')}`
    terminal.tell(`${made.state}, ${until}${replaced}${waitText(made.state, made.approvals_required)}\n`)
    tellWarnings(terminal, made.warnings)
    return EXIT.done
  },
})

function mistakesIn(given: Given): string[] {
  const effects = EFFECT_FLAGS.filter((flag) => given.has(flag))
  return [
    ...(effects.length === 1 ? [] : ['give exactly one of --limit, --factor, --ban and --exempt']),
    ...(given.has('status') && !given.has('ban') ? ['--status: give it with --ban'] : []),
    ...(given.has('expires-in') === given.has('forever')
      ? ['--expires-in: give either --expires-in or --forever']
      : []),
    ...missing(given, 'reason', 'the reason, for the audit log'),
  ]
}

function bodyOf(given: Given): Readonly<Record<string, unknown>> {
  const [limit, factor, status] = [given.text('limit'), given.text('factor'), given.text('status')]
  return {
    key: given.positionals[0] ?? '',
    rule_id: given.text('rule'),
    limit_name: given.text('limit-name'),
    ...(limit === undefined ? {} : { limit: Number(limit) }),
    ...(factor === undefined ? {} : { factor: Number(factor) }),
    ...(given.has('ban') ? { ban: status === undefined ? true : { status: Number(status) } } : {}),
    ...(given.has('exempt') ? { exempt: true } : {}),
    ...(given.has('forever') ? { forever: true } : { expires_in: given.text('expires-in') }),
    reason: given.text('reason'),
  }
}

function describe(given: Given): string {
  const name = given.text('limit-name')
  const limit = given.has('limit') && `limit ${name === undefined ? '' : `${escaped(name)} `}${given.text('limit')}`
  const factor = given.has('factor') && `× ${given.text('factor')}`
  const ban = given.has('ban') && `ban with ${given.text('status') ?? '429'}`
  const until = given.has('forever') ? 'forever' : `for ${given.text('expires-in')}`
  return `${limit || factor || ban || 'exempt'}, ${until}`
}

export const OVERRIDES_REMOVE: Command = defineCommand({
  name: 'overrides remove',
  summary: 'Removes an override.',
  details: 'Asks for confirmation. Requires a token with the role editor.',
  positionals: [OVERRIDE_ID],
  flags: [REASON_FLAG, YES_FLAG, DRY_RUN_FLAG, ...SERVER_FLAGS],
  examples: [{ does: 'lift a ban', line: 'sluice overrides remove ovr_018bcfe568a1b2c3d4e5f607 --yes' }],
  run: async (given, terminal) => {
    const [id = ''] = given.positionals
    const api = new Api(given)
    const path = `${OVERRIDES_PATH}/${encodeURIComponent(id)}`
    const found = await api.get<PlainOverride>(path)
    terminal.tell(
      `${escaped(`${found.rule_id ?? 'all rules'}, key ${found.key}: ${effectText(found)}, ${found.reason}`)}\n`,
    )
    if (given.has('dry-run')) return EXIT.done
    await confirm(given, terminal, 'Remove this override?')
    await remove(api, given, path)
    terminal.tell('removed\n')
    return EXIT.done
  },
})

export const OVERRIDES_APPROVE: Command = defineCommand({
  name: 'overrides approve',
  summary: 'Approves a pending override.',
  details: 'Requires the token of another person, with the role approver.',
  positionals: [OVERRIDE_ID],
  flags: [WHEN_READY_FLAG, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'approve', line: 'sluice overrides approve ovr_018bcfe568a1b2c3d4e5f607' }],
  run: (given, terminal) =>
    approve(given, terminal, `${OVERRIDES_PATH}/${encodeURIComponent(given.positionals[0] ?? '')}/approve`),
})
