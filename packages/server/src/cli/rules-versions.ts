// `sluice rules history`, `diff` and `rollback`: earlier versions of the rules.

import { parseRules, plainRule } from 'sluice'
import { RULE_SET_PATH } from '../http/routes/rule-set.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { changesBetween, type PlainRule, type RuleChange } from '../rules/changes.ts'
import { readRuleFile } from '../rules/rule-file.ts'
import { aligned } from '../text/aligned.ts'
import { Api, SERVER_FLAGS, WHEN_READY_FLAG } from './api.ts'
import type { Given } from './arguments.ts'
import { changesText, summaryOf } from './changes-text.ts'
import { type Command, CommandError, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { ruleFileErrors, ruleInput } from './offline.ts'
import { rollbackTo, ruleSet } from './rule-set-api.ts'
import { CHANGE_FLAGS, change } from './rules-apply.ts'

type VersionNote = {
  readonly version: number
  readonly rule_count: number
  readonly actor: string
  readonly actor_name: string | null
  readonly reason: string | null
  readonly created_at: string
}

const VERSION = /^\d{1,15}$/

export const RULES_HISTORY: Command = defineCommand({
  name: 'rules history',
  summary: 'Shows who changed the rules of a node, when and why.',
  positionals: [],
  flags: [
    {
      name: 'limit',
      value: '<number>',
      help: 'Number of versions, newest first.',
      fallback: '20',
      accepts: (text) => /^([1-9]\d{0,2}|1000)$/.test(text),
      fix: 'give a whole number from 1 to 1000',
    },
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [{ does: 'the last changes', line: 'sluice rules history --limit 5' }],
  run: async (given, terminal) => {
    const path = `${RULE_SET_PATH}/versions?limit=${given.text('limit')}`
    const { versions } = await new Api(given).get<{ versions: VersionNote[] }>(path)
    const rows = versions.map((note) => {
      const { version, created_at: at, actor, actor_name: name, rule_count: count, reason } = note
      return [String(version), at, name == null ? actor : `${name} (${actor})`, String(count), reason ?? '']
    })
    if (given.has('json')) terminal.out(`${JSON.stringify(versions, null, 2)}\n`)
    else terminal.out(`${aligned([['VERSION', 'CREATED', 'ACTOR', 'RULES', 'REASON'], ...rows]).join('\n')}\n`)
    return EXIT.done
  },
})

export const RULES_DIFF: Command = defineCommand({
  name: 'rules diff',
  summary: 'Shows the differences between two rule sets: versions or files.',
  details:
    'A number is a version of the node, - is standard input, anything else a file. Without <to>, compares with ' +
    'the active version.',
  positionals: [
    { name: '<from>', help: 'a version or a file' },
    { name: '<to>', help: 'a version or a file', optional: true },
  ],
  flags: [...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [
    { does: 'what changed from version 6 to 7?', line: 'sluice rules diff 6 7' },
    { does: 'does a file differ from the active rules?', line: 'sluice rules diff rules.yaml' },
    { does: 'two files, without a node', line: 'sluice rules diff old.yaml new.yaml' },
  ],
  run: async (given, terminal) => {
    const changes = await differences(given, terminal)
    if (given.has('json')) terminal.out(`${JSON.stringify(changes, null, 2)}\n`)
    else terminal.out(changesText(changes, terminal))
    terminal.tell(`${summaryOf(changes)}\n`)
    return EXIT.done
  },
})

async function differences(given: Given, terminal: Terminal): Promise<readonly RuleChange[]> {
  const [from = '', to] = given.positionals
  const api = new Api(given)
  if (VERSION.test(from) && (to === undefined || VERSION.test(to))) {
    const query = new URLSearchParams({ from, ...(to === undefined ? {} : { to }) })
    return (await api.get<{ changes: RuleChange[] }>(`${RULE_SET_PATH}/diff?${query}`)).changes
  }
  const before = await setNamed(from, api, terminal)
  return changesBetween(before, to === undefined ? await activeRules(api) : await setNamed(to, api, terminal))
}

async function setNamed(name: string, api: Api, terminal: Terminal): Promise<readonly PlainRule[]> {
  if (!VERSION.test(name)) {
    const input = await ruleInput(name, terminal)
    return ruleFileErrors(() => readRuleFile(input)).map(withDefaults)
  }
  const { rules } = await api.get<{ rules: unknown[] }>(`${RULE_SET_PATH}/versions/${name}`)
  return parseRules(rules).map(withDefaults)
}

async function activeRules(api: Api): Promise<readonly PlainRule[]> {
  return parseRules((await ruleSet(api)).rules).map(withDefaults)
}

/** Fills in defaults, because sets from different sources may omit different fields. */
function withDefaults(rule: Parameters<typeof plainRule>[0]): PlainRule {
  return { ...plainRule(rule), rule_id: rule.rule_id }
}

export const RULES_ROLLBACK: Command = defineCommand({
  name: 'rules rollback',
  summary: 'Restores the rules of an earlier version.',
  details:
    'Creates a new version. Shows the changes and asks for confirmation. During a freeze, and if changes need ' +
    'approval, only to the predecessor of the active version, and never back to rules that were rolled back.',
  positionals: [{ name: '<version>', help: 'a version, from sluice rules history' }],
  flags: [
    ...CHANGE_FLAGS,
    {
      name: 'guard',
      value: 'off',
      help: 'Do not guard a rollback that brings back withdrawn rules. Needs a reason.',
      accepts: (text) => text === 'off',
      fix: 'use off',
    },
    WHEN_READY_FLAG,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [{ does: 'undo', line: 'sluice rules rollback 6 --reason "7 refuses too many" --yes' }],
  run: async (given, terminal) => {
    const [version = ''] = given.positionals
    if (!VERSION.test(version))
      throw new CommandError(`<version>: give the number of a version (got ${JSON.stringify(version)})`, EXIT.invalid)
    return change(given, terminal, rollbackTo(Number(version)))
  },
})
