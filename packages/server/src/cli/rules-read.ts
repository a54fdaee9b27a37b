// `sluice rules list`, `show` and `export`: the rules of a node.

import { parseRules, type Rule } from 'sluice'
import { RULE_SET_PATH } from '../http/routes/rule-set.ts'
import { RULES_PATH } from '../http/routes/rules.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { PlainRule } from '../rules/changes.ts'
import { rulesYaml } from '../rules/yaml-writer.ts'
import { aligned } from '../text/aligned.ts'
import { ruleRow } from '../text/rule-row.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import { type Command, defineCommand, JSON_FLAG, OUTPUT_FLAGS } from './command.ts'
import { ruleNamed } from './rule-set-api.ts'

export const RULES_LIST: Command = defineCommand({
  name: 'rules list',
  summary: 'Lists the rules of a node.',
  positionals: [],
  flags: [
    { name: 'all', help: 'Include disabled and expired rules.' },
    { name: 'search', value: '<text>', help: 'Only list rules whose id, name or pattern contains this text.' },
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [{ does: 'all rules about messages', line: 'sluice rules list --search messages' }],
  run: async (given, terminal) => {
    const search = given.text('search')
    const query = new URLSearchParams({
      enabled: given.has('all') ? 'any' : 'true',
      ...(search === undefined ? {} : { search }),
    })
    const { version, rules } = await new Api(given).get<{ version: number; rules: unknown[] }>(`${RULES_PATH}?${query}`)
    if (given.has('json')) terminal.out(`${JSON.stringify({ version, rules }, null, 2)}\n`)
    else
      terminal.out(`${aligned([['RULE', 'LIMIT', 'SCOPE', 'ENDPOINT'], ...parseRules(rules).map(rowOf)]).join('\n')}\n`)
    terminal.tell(`version ${version}: ${rules.length} rules\n`)
    return EXIT.done
  },
})

function rowOf(rule: Rule): string[] {
  const [id = '', ...rest] = ruleRow(rule)
  return [rule.enabled ? id : `${id} (disabled)`, ...rest]
}

export const RULES_SHOW: Command = defineCommand({
  name: 'rules show',
  summary: 'Shows one rule of a node, as YAML.',
  positionals: [{ name: '<rule_id>', help: 'the id of a rule' }],
  flags: [...SERVER_FLAGS, JSON_FLAG],
  examples: [{ does: 'one rule', line: 'sluice rules show messages_per_min' }],
  run: async (given, terminal) => {
    const [id = ''] = given.positionals
    const rule = await ruleNamed(new Api(given), id)
    terminal.out(given.has('json') ? `${JSON.stringify(rule, null, 2)}\n` : await ruleText(rule))
    return EXIT.done
  },
})

async function ruleText(rule: PlainRule): Promise<string> {
  return rulesYaml([rule])
}

export const RULES_EXPORT: Command = defineCommand({
  name: 'rules export',
  summary: 'Prints all rules of a node as a rule file.',
  details: 'The output is valid input for sluice rules apply.',
  positionals: [],
  flags: [...SERVER_FLAGS, JSON_FLAG],
  examples: [{ does: 'from a database to a file', line: 'sluice rules export > rules.yaml' }],
  run: async (given, terminal) => {
    const format = given.has('json') ? 'json' : 'yaml'
    const { text } = await new Api(given).send('GET', `${RULE_SET_PATH}?format=${format}`)
    terminal.out(text.endsWith('\n') ? text : `${text}\n`)
    return EXIT.done
  },
})
