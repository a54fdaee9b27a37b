// `sluice check`: checks a request against a node or a rule file.

import { type Limiter, wallClock } from 'sluice'
import { type CheckAnswer, createAnswerText, readActiveRules, withDetail } from '../checks/answer.ts'
import type { CheckBody } from '../checks/check-body.ts'
import { subjectFromBody } from '../checks/check-body.ts'
import { CHECK_PATH } from '../http/routes/check.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { checkText, limitRows } from './check-text.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { RULES_FLAG, ruleInput, withRuleFile } from './offline.ts'
import { bodyOf, SUBJECT_FLAGS } from './subject-flags.ts'

const TIMES_MAX = 1000

export const CHECK: Command = defineCommand({
  name: 'check',
  summary: 'Checks whether a request is allowed.',
  details:
    'Consumes units like any other check. Exits with 3 if the request is refused; with --times, if the last one is.',
  positionals: [],
  flags: [
    ...SUBJECT_FLAGS,
    {
      name: 'times',
      value: '<number>',
      help: 'Number of checks, one after the other.',
      fallback: '1',
      accepts: (text) => /^\d{1,4}$/.test(text) && Number(text) >= 1 && Number(text) <= TIMES_MAX,
      fix: `give a whole number from 1 to ${TIMES_MAX}`,
    },
    { name: 'dry-run', help: 'Decide without consuming units.' },
    RULES_FLAG,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'on a node', line: 'sluice check --user alice --method POST --path /api/v1/messages' },
    { does: 'try rules without a node', line: 'sluice check --rules rules.yaml --path /demo --times 6' },
  ],
  run: async (given, terminal) => {
    const body = { ...bodyOf(given), detail: true, ...(given.has('dry-run') ? { dry_run: true } : {}) }
    const file = given.text('rules')
    const api = new Api(given)
    const check = () => api.post<CheckAnswer>(CHECK_PATH, body)
    if (file === undefined) return checkAll(given, terminal, check)
    return withRuleFile(await ruleInput(file, terminal), (limiter) =>
      checkAll(given, terminal, () => decide(limiter, body)),
    )
  },
})

async function checkAll(given: Given, terminal: Terminal, check: () => Promise<CheckAnswer>): Promise<number> {
  let allowed = true
  for (let left = Number(given.text('times')); left > 0; left -= 1) {
    const answer = await check()
    ;({ allowed } = answer)
    if (given.has('json')) terminal.out(`${JSON.stringify(answer)}\n`)
    else terminal.out([checkText(answer, terminal), ...limitRows(answer.rules ?? []), ''].join('\n'))
  }
  return allowed ? EXIT.done : EXIT.negative
}

async function decide(limiter: Limiter, body: CheckBody): Promise<CheckAnswer> {
  const subject = subjectFromBody(body)
  const decision = await (body.dry_run ? limiter.peek(subject) : limiter.check(subject))
  const nowUs = wallClock.nowUs()
  const text = createAnswerText()(decision, nowUs, readActiveRules(limiter), undefined)
  return JSON.parse(withDetail(text, decision, nowUs)) as CheckAnswer
}
