// `sluice reset <rule_id> <key>`: deletes the buckets of one key and one rule: the client has its full
// limit again.

import { LimiterError, parseRules } from 'sluice'
import { RESET_PATH } from '../http/routes/reset.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { PlainRule } from '../rules/changes.ts'
import { offlineLimiter } from '../rules/offline-limiter.ts'
import { aligned } from '../text/aligned.ts'
import { escaped, escapedJson } from '../text/escaped.ts'
import { ruleRow } from '../text/rule-row.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, CommandError, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { confirm, DRY_RUN_FLAG, REASON_FLAG, YES_FLAG } from './confirm.ts'
import { tellWarnings } from './exception-flags.ts'
import { ruleNamed } from './rule-set-api.ts'

type Key = string | Readonly<Record<string, string>>

export const RESET: Command = defineCommand({
  name: 'reset',
  summary: 'Resets the buckets of one key and one rule.',
  details:
    'Includes all limits of the rule. Asks for confirmation. Requires a token with the role editor. Other nodes ' +
    'follow within 200 ms; units that they have on lease stay spendable until the lease ends (at most 30 s).',
  positionals: [
    { name: '<rule_id>', help: 'the id of a rule' },
    { name: '<key>', help: 'the value of the fact alone, such as a user id; "" for a global rule', optional: true },
  ],
  flags: [
    {
      name: 'fact',
      value: '<name=value>',
      help: 'Instead of <key>, for a composite key: every fact by name. May be given several times.',
      repeats: true,
      accepts: (text) => text.indexOf('=') > 0,
      fix: 'use the form name=value',
    },
    REASON_FLAG,
    YES_FLAG,
    DRY_RUN_FLAG,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'a user', line: 'sluice reset messages_per_min user_12345 --reason "support ticket 17"' },
    {
      does: 'a composite key',
      line: 'sluice reset per_route --fact user=user_12345 --fact "endpoint=POST /api/v1/messages"',
    },
  ],
  run: async (given, terminal) => {
    const [ruleId = ''] = given.positionals
    const key = keyOf(given)
    const api = new Api(given)
    const rule = await ruleNamed(api, ruleId)
    await requireValid(rule, key)
    tellWarnings(terminal, keyWarnings(rule, key))
    terminal.tell(`${aligned(parseRules([rule]).map(ruleRow)).join('\n')}\n`)
    const shownKey = keyText(key)
    if (given.has('dry-run')) {
      terminal.tell(`would reset the buckets of ${shownKey}\n`)
      return EXIT.done
    }
    await confirm(given, terminal, `Reset the buckets of ${shownKey}?`)
    const answer = await api.post(RESET_PATH, { rule_id: ruleId, key, reason: given.text('reason') })
    if (given.has('json')) terminal.out(`${escapedJson(answer)}\n`)
    else terminal.tell('reset\n')
    return EXIT.done
  },
})

function keyOf(given: Given): Key {
  const [, key] = given.positionals
  const facts = given.texts('fact').map((text) => {
    const equals = text.indexOf('=')
    return [text.slice(0, equals), text.slice(equals + 1)] as const
  })
  if ((key === undefined) === (facts.length === 0))
    throw new CommandError('<key>: give either a key or --fact, once per fact', EXIT.invalid)
  if (key !== undefined) return key
  const names = facts.map(([name]) => name)
  const twice = names.find((name, index) => names.indexOf(name) !== index)
  if (twice !== undefined)
    throw new CommandError(`--fact: give each fact once (got ${escapedJson(twice)} twice)`, EXIT.invalid)
  return Object.fromEntries(facts)
}

/** Warns about a prefix that overrides need and resets do not: `user:alice` instead of `alice`. */
function keyWarnings(rule: PlainRule, key: Key): string[] {
  const [fact] = parseRules([rule]).flatMap(({ scope }) => scope)
  if (typeof key !== 'string' || fact === undefined || !key.startsWith(`${fact}:`)) return []
  return [`<key>: give the value alone, without "${fact}:", unless values start with it`]
}

/** Resets a bucket in memory first: an incomplete key is reported before the question, and by a dry run too. */
async function requireValid(rule: PlainRule, key: Key): Promise<void> {
  const limiter = offlineLimiter([rule])
  try {
    await limiter.reset(rule.rule_id, key)
  } catch (error) {
    if (!(error instanceof LimiterError)) throw error
    const [{ field, fix } = { field: 'key', fix: error.message }] = error.fieldErrors
    const [name, got] = field === 'ruleId' ? ['rule_id', escapedJson(rule.rule_id)] : ['key', keyText(key)]
    throw new CommandError(`<${name}>: ${fix} (got ${got})`, EXIT.invalid)
  } finally {
    await limiter.close()
  }
}

/** `"alice"`, or `user "alice", endpoint "POST /x"`. */
function keyText(key: Key): string {
  if (typeof key === 'string') return escapedJson(key)
  return Object.entries(key)
    .map(([name, value]) => `${escaped(name)} ${escapedJson(value)}`)
    .join(', ')
}
