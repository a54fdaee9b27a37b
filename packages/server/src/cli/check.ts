// `sluice check`: may this request pass? Asks a node, or the rules of a file.

import { type Limiter, wallClock } from 'sluice'
import { type CheckAnswer, createAnswerText, noteRules, withDetail } from '../http/bodies/answer.ts'
import type { CheckBody } from '../http/bodies/schemas.ts'
import { subjectOf } from '../http/bodies/subject.ts'
import { CHECK_PATH } from '../http/routes/check.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, defineCommand, EXIT, OUTPUT_FLAGS } from './command.ts'
import { RULES_FLAG, ruleInput, withRuleFile } from './offline.ts'
import { bodyOf, SUBJECT_FLAGS } from './subject-flags.ts'
import type { Terminal } from './terminal.ts'
import { limitRows, verdictOf } from './verdict.ts'

const TIMES_MAX = 1000

export const CHECK: Command = defineCommand({
  name: 'check',
  summary: 'Asks whether a request may pass.',
  details:
    'It counts, as any other request does. Ends with 3 when the request, or the last one of several, is refused.',
  positionals: [],
  flags: [
    ...SUBJECT_FLAGS,
    {
      name: 'times',
      value: '<number>',
      help: 'How often to ask, one after the other.',
      fallback: '1',
      accepts: (text) => /^\d{1,4}$/.test(text) && Number(text) >= 1 && Number(text) <= TIMES_MAX,
      fix: `give a whole number from 1 to ${TIMES_MAX}`,
    },
    { name: 'dry-run', help: 'Answer as a check would, and count nothing.' },
    RULES_FLAG,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'ask a node', line: 'sluice check --user alice --method POST --path /api/v1/messages' },
    { does: 'try rules out before anybody else does', line: 'sluice check --rules rules.yaml --path /demo --times 6' },
  ],
  run: async (given, terminal) => {
    const body = { ...bodyOf(given), detail: true, ...(given.has('dry-run') ? { dry_run: true } : {}) }
    const file = given.text('rules')
    const api = new Api(given)
    const ask = () => api.post<CheckAnswer>(CHECK_PATH, body)
    if (file === undefined) return askAll(given, terminal, ask)
    return withRuleFile(await ruleInput(file, terminal), (limiter) =>
      askAll(given, terminal, () => decide(limiter, body)),
    )
  },
})

async function askAll(given: Given, terminal: Terminal, ask: () => Promise<CheckAnswer>): Promise<number> {
  let allowed = true
  for (let left = Number(given.text('times')); left > 0; left -= 1) {
    const answer = await ask()
    ;({ allowed } = answer)
    if (given.has('json')) terminal.out(`${JSON.stringify(answer)}\n`)
    else terminal.out([verdictOf(answer, terminal), ...limitRows(answer.rules ?? []), ''].join('\n'))
  }
  return allowed ? EXIT.done : EXIT.no
}

async function decide(limiter: Limiter, body: CheckBody): Promise<CheckAnswer> {
  const subject = subjectOf(body)
  const decision = await (body.dry_run ? limiter.peek(subject) : limiter.check(subject))
  const nowUs = wallClock.nowUs()
  const text = createAnswerText()(decision, nowUs, noteRules(limiter), undefined)
  return JSON.parse(withDetail(text, decision, nowUs)) as CheckAnswer
}
