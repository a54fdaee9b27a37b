// `sluice token create`, `approve`, `list` and `revoke`: API tokens of a node.

import { wallClock } from 'sluice'
import { ROLES, type Role } from '../access/roles.ts'
import { createToken } from '../access/token-table.ts'
import type { Database } from '../db/database.ts'
import { migrate } from '../db/migrate.ts'
import { type PlainToken, plainToken, TOKENS_PATH, TTL_SECONDS } from '../http/routes/tokens.ts'
import { EXIT } from '../process/exit-codes.ts'
import { aligned } from '../text/aligned.ts'
import { durationSeconds } from '../text/duration.ts'
import { UNPRINTABLE } from '../text/escaped.ts'
import { Api, SERVER_FLAGS, WHEN_READY_FLAG } from './api.ts'
import { type Command, CommandError, defineCommand, JSON_FLAG, OUTPUT_FLAGS } from './command.ts'
import { confirm, YES_FLAG } from './confirm.ts'
import { DATABASE_FLAGS, namesDatabase, withDatabase } from './database-flags.ts'
import { approve, waitText } from './exception-flags.ts'

type CreatedToken = PlainToken & { readonly token: string }

/** Same as in the HTTP API. */
const NAME = new RegExp(`^[^${UNPRINTABLE}]{1,100}$`, 'u')

export const TOKEN_CREATE: Command = defineCommand({
  name: 'token create',
  summary: 'Creates a token and shows it once.',
  details:
    `Roles: ${ROLES.join(', ')}. Only the token goes to standard output, so that it can be piped. If changes need ` +
    'approval, a token of the role editor or above waits for approval itself, unless it is created on the host, with ' +
    '--database or --data-dir.',
  positionals: [{ name: '<name>', help: 'a name for the token, such as the user or program that holds it' }],
  flags: [
    { name: 'role', value: '<role>', help: 'Role of the token.', choices: ROLES, fallback: 'viewer' },
    {
      name: 'expires-in',
      value: '<duration>',
      help: 'Lifetime, such as 90d, 12h or 30m.',
      shownFallback: 'until it is revoked',
      accepts: (text) => secondsOf(text) !== undefined,
      fix: 'give a whole number and a unit, m, h or d, such as 90d: from 1m to 3660d',
    },
    ...DATABASE_FLAGS,
    WHEN_READY_FLAG,
    ...SERVER_FLAGS,
    JSON_FLAG,
  ],
  examples: [
    { does: 'for a gateway', line: 'sluice token create gateway --role check --expires-in 90d' },
    { does: 'if the last admin token is lost', line: 'sluice token create me --role admin --data-dir .sluice' },
    { does: 'for CI', line: 'SLUICE_TOKEN=$(sluice token create ci --role editor)' },
  ],
  run: async (given, terminal) => {
    const [name = ''] = given.positionals
    if (!NAME.test(name))
      throw new CommandError('<name>: give 1 to 100 characters without control characters', EXIT.invalid)
    const role = ROLES.find((known) => known === given.text('role')) ?? 'viewer'
    const seconds = secondsOf(given.text('expires-in') ?? '')
    const made = namesDatabase(given)
      ? await withDatabase(given, (database) => createInDatabase(database, name, role, seconds))
      : await new Api(given, terminal).post<CreatedToken>(TOKENS_PATH, {
          name,
          role,
          ...(seconds && { ttl_seconds: seconds }),
        })
    terminal.out(given.has('json') ? `${JSON.stringify(made, null, 2)}\n` : `${made.token}\n`)
    const end = made.expires_at === null ? 'until it is revoked' : `until ${made.expires_at}`
    terminal.tell(`${made.token_id}: role ${made.role}, valid ${end}. The token is not shown again.\n`)
    if (made.state === 'pending') {
      terminal.tell(
        `It is rejected until approved${waitText(made.state, made.approvals_required)}, before ${made.waits_until}: ` +
          `sluice token approve ${made.token_id}\n`,
      )
    }
    return EXIT.done
  },
})

/** For operators who have the database but no admin token. */
async function createInDatabase(
  database: Database,
  name: string,
  role: Role,
  seconds: number | undefined,
): Promise<CreatedToken> {
  await migrate(database)
  const now = new Date(wallClock.nowUs() / 1000)
  const expiresAt = seconds === undefined ? null : new Date(now.getTime() + seconds * 1000)
  const made = await createToken(database, { name, role, expiresAt }, 'command', now)
  if (made === undefined) throw new CommandError('too many tokens: revoke some first')
  return { token: made.secret, ...plainToken(made.token) }
}

export const TOKEN_LIST: Command = defineCommand({
  name: 'token list',
  summary: 'Lists all tokens of a node, without secrets.',
  positionals: [],
  flags: [...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'who has access?', line: 'sluice token list' }],
  run: async (given, terminal) => {
    const { tokens } = await new Api(given).get<{ tokens: PlainToken[] }>(TOKENS_PATH)
    const rows = tokens.map((token) => [
      token.token_id,
      token.name,
      token.role,
      stateOf(token),
      token.last_used_at ?? 'never',
    ])
    if (given.has('json')) terminal.out(`${JSON.stringify(tokens, null, 2)}\n`)
    else terminal.out(`${aligned([['TOKEN', 'NAME', 'ROLE', 'VALID', 'LAST USED'], ...rows]).join('\n')}\n`)
    return EXIT.done
  },
})

function stateOf({ revoked_at: revoked, expires_at: ends, waits_until: waits }: PlainToken): string {
  if (waits !== undefined) return `not before approval, deleted ${waits}`
  if (revoked !== null) return `revoked ${revoked}`
  return ends === null ? 'until revoked' : `until ${ends}`
}

export const TOKEN_APPROVE: Command = defineCommand({
  name: 'token approve',
  summary: 'Approves a token that waits for approval.',
  details:
    'Needs the role approver, and a token that is not related to the creator: see docs/guides/access.md. Approve it ' +
    'only if you know who will hold the token.',
  positionals: [{ name: '<token_id>', help: 'the id of a token, as its creator got it' }],
  flags: [...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'a colleague gets a token', line: 'sluice token approve tok_1f0c2a9be4d77310' }],
  run: (given, terminal) =>
    approve(given, terminal, `${TOKENS_PATH}/${encodeURIComponent(given.positionals[0] ?? '')}/approve`),
})

export const TOKEN_REVOKE: Command = defineCommand({
  name: 'token revoke',
  summary: 'Revokes a token, also a pending one, immediately and permanently.',
  positionals: [{ name: '<token_id>', help: 'the id of a token, from sluice token list' }],
  flags: [YES_FLAG, { name: 'dry-run', help: 'Show the token without revoking it.' }, ...SERVER_FLAGS],
  examples: [{ does: 'a leaked token', line: 'sluice token revoke tok_1f0c2a9be4d77310 --yes' }],
  run: async (given, terminal) => {
    const [id = ''] = given.positionals
    const api = new Api(given)
    const { tokens } = await api.get<{ tokens: PlainToken[] }>(TOKENS_PATH)
    const token = tokens.find(({ token_id: known }) => known === id)
    if (token === undefined)
      throw new CommandError(`unknown token ${id}; sluice token list shows all tokens`, EXIT.invalid)
    terminal.tell(`${id}: ${token.name}, role ${token.role}, ${stateOf(token)}\n`)
    if (given.has('dry-run') || token.revoked_at !== null) return EXIT.done
    await confirm(given, terminal, 'Revoke this token?')
    await api.send('DELETE', `${TOKENS_PATH}/${encodeURIComponent(id)}`)
    terminal.tell('revoked\n')
    return EXIT.done
  },
})

/** `90d` → seconds. */
function secondsOf(text: string): number | undefined {
  const seconds = durationSeconds(text) ?? Number.NaN
  return seconds >= TTL_SECONDS.min && seconds <= TTL_SECONDS.max ? seconds : undefined // false for NaN
}
