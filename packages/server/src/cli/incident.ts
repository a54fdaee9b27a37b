// `sluice incident status`, `freeze`, `unfreeze`, `factor` and `approve`: tools for an incident.

import { INCIDENT_PATH, type IncidentAnswer, type PlainFactor } from '../http/routes/incident.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { escaped, escapedJson } from '../text/escaped.ts'
import { Api, SERVER_FLAGS, WHEN_READY_FLAG } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, defineCommand, type Flag, OUTPUT_FLAGS } from './command.ts'
import { confirm, DRY_RUN_FLAG, REASON_FLAG, unconfirmable, YES_FLAG } from './confirm.ts'
import { approve, lifetimeFlag, missing, remove } from './exception-flags.ts'
import { actorText } from './list.ts'

const CHANGE_FLAGS: readonly Flag[] = [REASON_FLAG, YES_FLAG, DRY_RUN_FLAG, ...SERVER_FLAGS, ...OUTPUT_FLAGS]
const FACTOR_PATH = `${INCIDENT_PATH}/factor`
const OFF = 'off'
const REASON = 'the reason, for the audit log'

export const INCIDENT_STATUS: Command = defineCommand({
  name: 'incident status',
  summary: 'Shows whether rule changes are frozen, and the global factor.',
  positionals: [],
  flags: [...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'are rules frozen, or limits multiplied?', line: 'sluice incident status' }],
  run: async (given, terminal) => printState(await new Api(given).get<IncidentAnswer>(INCIDENT_PATH), given, terminal),
})

export const INCIDENT_FREEZE: Command = defineCommand({
  name: 'incident freeze',
  summary: 'Freezes rule changes: only a rollback can then change rules.',
  details:
    'Kill switch, overrides and global factor still work. Asks for confirmation. Requires a reason, and a token with ' +
    'the role approver.',
  positionals: [],
  flags: [WHEN_READY_FLAG, ...CHANGE_FLAGS],
  examples: [{ does: 'during an incident', line: 'sluice incident freeze --reason "incident 42" --yes' }],
  mistakes: (given, terminal) => [...missing(given, 'reason', REASON), ...unconfirmable(given, terminal)],
  run: (given, terminal) => {
    const reason = given.text('reason')
    return change(given, terminal, 'freeze rule changes', (api) =>
      api.post<IncidentAnswer>(`${INCIDENT_PATH}/freeze`, { reason }),
    )
  },
})

export const INCIDENT_UNFREEZE: Command = defineCommand({
  name: 'incident unfreeze',
  summary: 'Allows rule changes again.',
  details: 'Asks for confirmation. Requires a token with the role approver.',
  positionals: [],
  flags: CHANGE_FLAGS,
  examples: [{ does: 'after the incident', line: 'sluice incident unfreeze --yes' }],
  run: (given, terminal) =>
    change(given, terminal, 'allow rule changes', (api) =>
      api.post<IncidentAnswer>(`${INCIDENT_PATH}/unfreeze`, { reason: given.text('reason') }),
    ),
})

export const INCIDENT_FACTOR: Command = defineCommand({
  name: 'incident factor',
  summary: 'Multiplies all limits of all rules until the factor expires.',
  details:
    'A limit above 0 never falls below 1; a limit of 0 stays 0. Asks for confirmation. Requires a reason and ' +
    '--expires-in, and a token with the role approver.',
  positionals: [{ name: '<factor>', help: 'a number such as 0.5, or off to end the factor' }],
  flags: [
    lifetimeFlag('When it ends, such as 30m or 12h. Required, except with off.'),
    WHEN_READY_FLAG,
    ...CHANGE_FLAGS,
  ],
  examples: [
    {
      does: 'everything at 50 %',
      line: 'sluice incident factor 0.5 --expires-in 30m --reason "database overload" --yes',
    },
    { does: 'back to normal', line: 'sluice incident factor off --yes' },
  ],
  mistakes: (given, terminal) => [
    ...(given.positionals[0] === OFF ? [] : factorMistakes(given)),
    ...unconfirmable(given, terminal),
  ],
  run: async (given, terminal) => {
    const [text = ''] = given.positionals
    if (text === OFF) {
      return change(given, terminal, 'end the global factor', async (api) => {
        await remove(api, given, FACTOR_PATH)
        return api.get<IncidentAnswer>(INCIDENT_PATH)
      })
    }
    const [factor, expiresIn, reason] = [Number(text), given.text('expires-in'), given.text('reason')]
    return change(given, terminal, `multiply all limits by ${factor} for ${expiresIn}`, (api) =>
      api.post<IncidentAnswer>(FACTOR_PATH, { factor, expires_in: expiresIn, reason }),
    )
  },
})

function factorMistakes(given: Given): string[] {
  const [text] = given.positionals
  const isGood = text === undefined || (/^\d+(\.\d+)?$/.test(text) && Number(text) > 0 && Number(text) <= 1000)
  return [
    ...(isGood ? [] : [`<factor>: give a number above 0 and at most 1000, or ${OFF}`]),
    ...missing(given, 'expires-in', 'a duration, such as 30m'),
    ...missing(given, 'reason', REASON),
  ]
}

export const INCIDENT_APPROVE: Command = defineCommand({
  name: 'incident approve',
  summary: 'Approves the pending global factor.',
  details: 'Requires the token of another person, with the role approver.',
  positionals: [{ name: '<factor_id>', help: 'the id of a factor, from sluice incident status' }],
  flags: [WHEN_READY_FLAG, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'approve', line: 'sluice incident approve fac_018bcfe568a1b2c3d4e5f607' }],
  run: (given, terminal) =>
    approve(given, terminal, `${FACTOR_PATH}/approve`, { factor_id: given.positionals[0] ?? '' }),
})

async function change(
  given: Given,
  terminal: Terminal,
  what: string,
  apply: (api: Api) => Promise<IncidentAnswer>,
): Promise<number> {
  if (given.has('dry-run')) {
    terminal.tell(`would ${what}\n`)
    return EXIT.done
  }
  await confirm(given, terminal, `${what.charAt(0).toUpperCase()}${what.slice(1)}?`)
  return printState(await apply(new Api(given, terminal)), given, terminal)
}

function printState(state: IncidentAnswer, given: Given, terminal: Terminal): number {
  if (given.has('json')) {
    terminal.out(`${escapedJson(state)}\n`)
    return EXIT.done
  }
  const { freeze, factor, pending_factor: pending } = state
  const lines = [
    freeze === null ? 'rule changes: allowed' : `rule changes: frozen ${freezeText(freeze)}`,
    factor === null ? 'global factor: none' : `global factor: ${factorText(factor)}`,
    ...(pending === null ? [] : [`global factor, waiting for approval: ${pending.factor_id}: ${factorText(pending)}`]),
  ]
  terminal.out(`${lines.map(escaped).join('\n')}\n`)
  return EXIT.done
}

function freezeText({ since, by, by_name: name, reason }: NonNullable<IncidentAnswer['freeze']>): string {
  return `since ${since} by ${actorText(by, name)} (${reason ?? 'no reason'})`
}

function factorText({ factor, expires_at: until, by, by_name: name, reason }: PlainFactor): string {
  return `${factor} until ${until} by ${actorText(by, name)} (${reason})`
}
