// `sluice kill-switch status`, `disable` and `enable`: disables a rule, or all rules, without changing them.

import { parseRules, suggestion } from 'sluice'
import { KILL_SWITCH_PATH, type KillState } from '../http/routes/kill-switch.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { aligned } from '../text/aligned.ts'
import { escapedJson } from '../text/escaped.ts'
import { ruleRow } from '../text/rule-row.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, CommandError, defineCommand, type Flag, OUTPUT_FLAGS, type Positional } from './command.ts'
import { confirm, DRY_RUN_FLAG, REASON_FLAG, YES_FLAG } from './confirm.ts'
import { actorText, printList } from './list.ts'
import { ruleNamed } from './rule-set-api.ts'

const RULE_ID: Positional = { name: '<rule_id>', help: 'the id of a rule', optional: true }

const FLAGS: readonly Flag[] = [
  { name: 'everything', help: 'Instead of <rule_id>: all rules.' },
  REASON_FLAG,
  YES_FLAG,
  DRY_RUN_FLAG,
  ...SERVER_FLAGS,
  ...OUTPUT_FLAGS,
]

export const KILL_SWITCH_STATUS: Command = defineCommand({
  name: 'kill-switch status',
  summary: 'Shows which rules are disabled, since when, by whom and why.',
  details: 'Exits with 0 whether or not rules are disabled.',
  positionals: [],
  flags: [...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [{ does: 'is anything disabled?', line: 'sluice kill-switch status' }],
  run: async (given, terminal) => {
    printState(await new Api(given).get<KillState>(KILL_SWITCH_PATH), given, terminal)
    return EXIT.done
  },
})

export const KILL_SWITCH_DISABLE: Command = defineCommand({
  name: 'kill-switch disable',
  summary: 'Disables a rule, or all rules, immediately.',
  details:
    'The rules stay unchanged, and a disabled rule charges no buckets. Asks for confirmation. Requires a token with ' +
    'the role approver. Without a database, it applies to this node only: repeat it for every node.',
  positionals: [RULE_ID],
  flags: FLAGS,
  examples: [
    { does: 'one rule', line: 'sluice kill-switch disable demo --reason "blocks all users in Spain"' },
    { does: 'all rules, without confirmation', line: 'sluice kill-switch disable --everything --reason outage --yes' },
  ],
  run: async (given, terminal) => {
    const ruleId = targetOf(given)
    const api = new Api(given)
    if (ruleId !== null) {
      const rule = await ruleNamed(api, ruleId)
      terminal.tell(`${aligned(parseRules([rule]).map(ruleRow)).join('\n')}\n`)
    }
    return change(api, given, terminal, {
      ruleId,
      on: true,
      question: ruleId === null ? 'Disable all rules? All requests are then admitted.' : 'Disable this rule?',
    })
  },
})

export const KILL_SWITCH_ENABLE: Command = defineCommand({
  name: 'kill-switch enable',
  summary: 'Enables a disabled rule, or all rules, again.',
  details:
    'Rules that were disabled one by one stay disabled after --everything. Asks for confirmation. Requires a token ' +
    'with the role approver.',
  positionals: [RULE_ID],
  flags: FLAGS,
  examples: [
    { does: 'one rule', line: 'sluice kill-switch enable demo --reason "the limit was raised"' },
    { does: 'after --everything', line: 'sluice kill-switch enable --everything --yes' },
  ],
  run: async (given, terminal) => {
    const ruleId = targetOf(given)
    const api = new Api(given)
    const state = await api.get<KillState>(KILL_SWITCH_PATH)
    const disabled = state.kills.flatMap(({ rule_id: id }) => id ?? [])
    if (ruleId !== null && !disabled.includes(ruleId)) {
      const hint = suggestion(ruleId, disabled)
      throw new CommandError(`rule ${escapedJson(ruleId)} is not disabled${hint}`, EXIT.invalid)
    }
    if (ruleId === null && !state.everything) {
      if (!given.has('json')) terminal.tell('the rules are not disabled as a whole; nothing was changed\n')
      printState(state, given, terminal)
      return EXIT.done
    }
    const question = ruleId === null ? 'Enable all rules?' : `Enable rule ${escapedJson(ruleId)}?`
    return change(api, given, terminal, { ruleId, on: false, question })
  },
})

/** null: all rules. */
function targetOf(given: Given): string | null {
  const [ruleId] = given.positionals
  if ((ruleId === undefined) !== given.has('everything'))
    throw new CommandError('<rule_id>: give either the id of a rule or --everything', EXIT.invalid)
  return ruleId ?? null
}

type Change = { readonly ruleId: string | null; readonly on: boolean; readonly question: string }

async function change(api: Api, given: Given, terminal: Terminal, wanted: Change): Promise<number> {
  const { ruleId, on, question } = wanted
  if (given.has('dry-run')) {
    terminal.tell(`would ${on ? 'disable' : 'enable'} ${ruleId === null ? 'all rules' : escapedJson(ruleId)}\n`)
    return EXIT.done
  }
  await confirm(given, terminal, question)
  const target = ruleId === null ? { everything: true } : { rule_id: ruleId }
  printState(
    await api.post<KillState>(KILL_SWITCH_PATH, { ...target, on, reason: given.text('reason') }),
    given,
    terminal,
  )
  return EXIT.done
}

function printState(state: KillState, given: Given, terminal: Terminal): void {
  const { everything, durable, kills } = state
  const rows = kills.map(({ rule_id: id, since, by, by_name: name, reason }) => {
    return [id ?? '(all rules)', since, actorText(by, name), reason ?? '']
  })
  const header = ['DISABLED', 'SINCE', 'BY', 'REASON']
  printList({ answer: state, header, rows, none: 'no rules are disabled' }, given, terminal)
  if (given.has('json') || kills.length === 0) return
  const count = kills.length === 1 ? '1 rule is' : `${kills.length} rules are`
  const what = everything ? 'all rules are' : count
  const where = durable ? 'on all nodes, also after a restart' : 'on this node only, until it stops'
  terminal.tell(`${what} disabled ${where}\n`)
}
