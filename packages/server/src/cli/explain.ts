// `sluice explain`: shows the decision for a request, which rules apply to it and why others do not. Consumes nothing.
// Uses a node or a rule file.

import { wallClock } from 'sluice'
import { EXPLAIN_PATH, type ExplainAnswer, explain } from '../http/routes/explain.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { aligned } from '../text/aligned.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import { checkText, exceptionRows, limitRows } from './check-text.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { RULES_FLAG, ruleInput, withRuleFile } from './offline.ts'
import { paintOn } from './paint.ts'
import { bodyOf, SUBJECT_FLAGS } from './subject-flags.ts'

export const EXPLAIN: Command = defineCommand({
  name: 'explain',
  summary: 'Shows which rules apply to a request, and why others do not.',
  details: 'Consumes nothing. On a node, requires a token with the role viewer.',
  positionals: [],
  flags: [...SUBJECT_FLAGS, RULES_FLAG, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [
    { does: 'why is a user refused?', line: 'sluice explain --user alice --method POST --path /api/v1/messages' },
    {
      does: 'which rules of a file would apply?',
      line: 'sluice explain --rules rules.yaml --path /demo --ip 192.0.2.1',
    },
  ],
  run: async (given, terminal) => {
    const body = bodyOf(given)
    const file = given.text('rules')
    const answer =
      file === undefined
        ? await new Api(given).post<ExplainAnswer>(EXPLAIN_PATH, body)
        : await withRuleFile(await ruleInput(file, terminal), (limiter) => explain(limiter, body, wallClock))
    terminal.out(given.has('json') ? `${JSON.stringify(answer, null, 2)}\n` : textOf(answer, terminal))
    return EXIT.done
  },
})

function textOf(explained: ExplainAnswer, terminal: Terminal): string {
  const { answer, version, rules, exceptions, left_out: leftOut, policy_reason: reason } = explained
  const paint = paintOn(terminal)
  const applying = rules.filter(({ applies }) => applies)
  const withoutLimits = applying.filter(({ limits = [] }) => limits.length === 0) // unlimited rules
  const others = rules.filter(({ applies }) => !applies)
  return [
    `would be ${checkText(answer, terminal)}`,
    ...(reason === undefined
      ? []
      : [`The store does not answer (${reason}): on_fail decides, and what is left is unknown.`]),
    '',
    paint('bold', `Rules that apply (version ${version}):`),
    ...(applying.length === 0 ? ['  none'] : limitRows(applying.flatMap(({ limits = [] }) => limits))),
    ...aligned(withoutLimits.map(({ rule_id: id, detail }) => [id, detail])),
    ...(exceptions.length === 0 ? [] : ['', paint('bold', 'Exceptions:'), ...exceptionRows(exceptions)]),
    '',
    paint('bold', 'Rules that do not apply:'),
    ...(others.length === 0
      ? ['  none']
      : aligned(others.map(({ rule_id: id, reason = '', detail }) => [id, reason, detail]))),
    ...(leftOut === 0 ? [] : [`  … and ${leftOut} more`]),
    '',
  ].join('\n')
}
