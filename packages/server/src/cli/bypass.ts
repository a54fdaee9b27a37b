// `sluice bypass create`, `list`, `rotate`, `revoke` and `approve`: tokens whose requests skip rules.

import { BYPASS_PATH, type PlainBypass } from '../http/routes/bypass-tokens.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { escaped } from '../text/escaped.ts'
import { Api, SERVER_FLAGS, WHEN_READY_FLAG } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, CommandError, defineCommand, JSON_FLAG, OUTPUT_FLAGS, type Positional } from './command.ts'
import { confirm, DRY_RUN_FLAG, REASON_FLAG, YES_FLAG } from './confirm.ts'
import { approve, lifetimeFlag, missing, remove, waitText } from './exception-flags.ts'
import { printList } from './list.ts'

type Created = PlainBypass & { readonly token: string; readonly approvals_required?: number }

const BYPASS_ID: Positional = { name: '<bypass_id>', help: 'the id of a bypass token, from sluice bypass list' }

export const BYPASS_CREATE: Command = defineCommand({
  name: 'bypass create',
  summary: 'Creates a bypass token and shows it once.',
  details:
    'Requests with the token skip rules, but never a ban. Only the token goes to standard output, so that it can be ' +
    'piped. Requires a token with the role approver.',
  positionals: [{ name: '<name>', help: 'a name for the token, such as the program that uses it' }],
  flags: [
    {
      name: 'rule',
      value: '<rule_id>',
      help: 'Rule that it bypasses; may be repeated.',
      repeats: true,
      shownFallback: 'all rules',
    },
    {
      name: 'path',
      value: '<pattern>',
      help: 'Pattern of the paths that it is valid for; may be repeated.',
      repeats: true,
      shownFallback: 'all paths',
    },
    lifetimeFlag('Lifetime, such as 90d, 12h or 30m. Required.'),
    {
      name: 'limit-per-minute',
      value: '<number>',
      help: 'Units per minute, over all nodes; a request of cost n takes n. Required.',
      accepts: (text) => /^[1-9]\d{0,8}$/.test(text),
      fix: 'give a whole number from 1',
    },
    REASON_FLAG,
    WHEN_READY_FLAG,
    ...SERVER_FLAGS,
    JSON_FLAG,
  ],
  examples: [
    {
      does: 'for a load test',
      line: 'sluice bypass create "load test" --path "/api/**" --expires-in 1d --limit-per-minute 60000',
    },
  ],
  mistakes: (given) => [
    ...missing(given, 'expires-in', 'a lifetime, such as 90d'),
    ...missing(given, 'limit-per-minute', 'a number of units, such as 600'),
  ],
  run: async (given, terminal) => {
    const [rules, paths] = [given.texts('rule'), given.texts('path')]
    const made = await new Api(given, terminal).post<Created>(BYPASS_PATH, {
      name: given.positionals[0],
      ...(rules.length === 0 ? {} : { rules }),
      ...(paths.length === 0 ? {} : { paths }),
      expires_in: given.text('expires-in'),
      limit_per_minute: Number(given.text('limit-per-minute')),
      reason: given.text('reason'),
    })
    printSecret(made, given, terminal)
    return EXIT.done
  },
})

function printSecret(made: Created, given: Given, terminal: Terminal): void {
  terminal.out(given.has('json') ? `${JSON.stringify(made, null, 2)}\n` : `${made.token}\n`)
  const wait = waitText(made.state, made.approvals_required)
  terminal.tell(`${made.bypass_id}: ${made.state}, until ${made.expires_at}${wait}. The token is not shown again.\n`)
}

export const BYPASS_LIST: Command = defineCommand({
  name: 'bypass list',
  summary: 'Lists bypass tokens, without secrets, with their uses.',
  positionals: [],
  flags: [...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'who bypasses the rules?', line: 'sluice bypass list' }],
  run: async (given, terminal) => {
    const answer = await new Api(given).get<{ bypass_tokens: PlainBypass[] }>(BYPASS_PATH)
    const rows = answer.bypass_tokens.map((token) => [
      token.bypass_id,
      token.name,
      [...(token.rules ?? ['all rules']), ...(token.paths ?? [])].join(' '),
      `${token.limit_per_minute}/min`,
      stateOf(token),
      String(token.uses),
      token.last_used_at ?? 'never',
    ])
    const header = ['BYPASS', 'NAME', 'SCOPE', 'LIMIT', 'VALID', 'USES', 'LAST USED']
    printList({ answer, header, rows, none: 'no bypass tokens' }, given, terminal)
    return EXIT.done
  },
})

function stateOf({ revoked_at: revoked, expires_at: ends, state }: PlainBypass): string {
  if (revoked !== null) return `revoked ${revoked}`
  return state === 'pending' ? `until ${ends} (pending)` : `until ${ends}`
}

/** Prints the token and returns it. */
async function tokenNamed(api: Api, id: string, terminal: Terminal): Promise<PlainBypass> {
  const { bypass_tokens: tokens } = await api.get<{ bypass_tokens: PlainBypass[] }>(BYPASS_PATH)
  const token = tokens.find(({ bypass_id: known }) => known === id)
  if (token === undefined)
    throw new CommandError(`unknown bypass token ${escaped(id)}; sluice bypass list shows all`, EXIT.invalid)
  terminal.tell(`${id}: ${escaped(token.name)}, ${stateOf(token)}, ${token.uses} uses\n`)
  return token
}

export const BYPASS_ROTATE: Command = defineCommand({
  name: 'bypass rotate',
  summary: 'Creates a new secret for a bypass token and shows it once.',
  details: 'The previous secret stays valid for the grace period. Requires a token with the role approver.',
  positionals: [BYPASS_ID],
  flags: [
    {
      name: 'grace',
      value: '<duration>',
      help: 'How long the previous secret stays valid; 0 ends it at once.',
      fallback: '1h',
      accepts: (text) => /^(0|\d{1,6}[smhd])$/.test(text),
      fix: 'give a duration such as 1h, or 0',
    },
    YES_FLAG,
    ...SERVER_FLAGS,
    JSON_FLAG,
  ],
  examples: [{ does: 'a new secret', line: 'sluice bypass rotate byp_018bcfe568a1b2c3d4e5f607 --grace 1d --yes' }],
  run: async (given, terminal) => {
    const [id = ''] = given.positionals
    const api = new Api(given)
    await tokenNamed(api, id, terminal)
    await confirm(given, terminal, `Rotate this token? The current secret expires in ${given.text('grace')}.`)
    const path = `${BYPASS_PATH}/${encodeURIComponent(id)}/rotate`
    printSecret(await api.post<Created>(path, { grace: given.text('grace') }), given, terminal)
    return EXIT.done
  },
})

export const BYPASS_REVOKE: Command = defineCommand({
  name: 'bypass revoke',
  summary: 'Revokes a bypass token immediately and permanently.',
  positionals: [BYPASS_ID],
  flags: [REASON_FLAG, YES_FLAG, DRY_RUN_FLAG, ...SERVER_FLAGS],
  examples: [{ does: 'a leaked token', line: 'sluice bypass revoke byp_018bcfe568a1b2c3d4e5f607 --yes' }],
  run: async (given, terminal) => {
    const [id = ''] = given.positionals
    const api = new Api(given)
    const token = await tokenNamed(api, id, terminal)
    if (given.has('dry-run') || token.revoked_at !== null) return EXIT.done
    await confirm(given, terminal, 'Revoke this token?')
    await remove(api, given, `${BYPASS_PATH}/${encodeURIComponent(id)}`)
    terminal.tell('revoked\n')
    return EXIT.done
  },
})

export const BYPASS_APPROVE: Command = defineCommand({
  name: 'bypass approve',
  summary: 'Approves a pending bypass token.',
  details: 'Requires the token of another person, with the role approver.',
  positionals: [BYPASS_ID],
  flags: [WHEN_READY_FLAG, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'approve', line: 'sluice bypass approve byp_018bcfe568a1b2c3d4e5f607' }],
  run: (given, terminal) =>
    approve(given, terminal, `${BYPASS_PATH}/${encodeURIComponent(given.positionals[0] ?? '')}/approve`),
})
