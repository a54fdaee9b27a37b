// `sluice rules simulate`: replays a log, or the events of a node, with other rules and shows who would be refused.

import type { Rule } from 'sluice'
import { LOG_FORMATS, type LogFormat, type ReplayResult } from 'sluice/replay'
import { SIMULATE_PATH } from '../http/routes/simulate.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { offlineLimiter } from '../rules/offline-limiter.ts'
import { useRuleFile } from '../rules/rule-file.ts'
import { type LogResult, SampledLog, simulateLog } from '../simulation/simulate-log.ts'
import { escapedJson } from '../text/escaped.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, CommandError, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { ruleFileErrors, ruleInput } from './offline.ts'
import { simulationText } from './simulation-text.ts'

const BAR_WIDTH = 30

export const RULES_SIMULATE: Command = defineCommand({
  name: 'rules simulate',
  summary: 'Shows who would have been refused by other rules.',
  details:
    'Replays an access log (Common or Combined Log Format, JSON lines, or events of Sluice) on a virtual clock, and ' +
    'compares with the status codes in the log (429: refused), or with other rules. Without --log, replays the ' +
    'events of a node and compares with its active rules; requires a token with the role viewer. Changes nothing.',
  positionals: [],
  flags: [
    {
      name: 'rules',
      value: '<file>',
      help: 'The new rules: a file, YAML or JSON, or - for standard input.',
      isFile: true,
    },
    {
      name: 'log',
      value: '<file>',
      help: 'A log file, also compressed (.gz), or - for standard input. May be repeated, oldest file first.',
      repeats: true,
      isFile: true,
    },
    { name: 'against', value: '<file>', help: 'Rules to compare with, instead of the log or the node.', isFile: true },
    {
      name: 'format',
      value: '<format>',
      help: 'Format of the log. auto: detected for each line.',
      choices: LOG_FORMATS,
      fallback: 'auto',
    },
    {
      name: 'top',
      value: '<number>',
      help: 'Clients to list.',
      fallback: '10',
      accepts: (text) => /^([1-9]\d{0,2}|1000)$/.test(text),
      fix: 'give a whole number from 1 to 1000',
    },
    {
      name: 'from',
      value: '<time>',
      help: 'Start of the events of a node: a time (RFC 3339), or how long ago: 15m, 24h, 7d.',
      fallback: '1h',
    },
    { name: 'to', value: '<time>', help: 'End of the events of a node, in the same form. Default: now.' },
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'new rules on an access log', line: 'sluice rules simulate --log access.log --rules new.yaml' },
    {
      does: 'compared with the active rules',
      line: 'sluice rules simulate --log access.log --rules new.yaml --against current.yaml',
    },
    { does: 'on the traffic of a node', line: 'sluice rules simulate --rules new.yaml --from 24h' },
  ],
  run: async (given, terminal) => {
    const [file, logs] = [given.text('rules'), given.texts('log')]
    if (file === undefined) throw new CommandError('give the new rules with --rules <file>', EXIT.invalid)
    if ([file, given.text('against'), ...logs].filter((name) => name === '-').length > 1) {
      throw new CommandError('standard input can be read only once: give a file', EXIT.invalid)
    }
    const rules = await rulesIn(file, terminal)
    const other = given.text('against')
    const against = other === undefined ? undefined : await rulesIn(other, terminal)
    const result =
      logs.length === 0 ? await onNode(given, rules, against) : await onLog(given, logs, rules, against, terminal)
    terminal.out(given.has('json') ? `${escapedJson(result)}\n` : simulationText(result, terminal))
    return EXIT.done
  },
})

async function rulesIn(name: string, terminal: Terminal): Promise<readonly Rule[]> {
  const input = await ruleInput(name, terminal)
  return ruleFileErrors(() => useRuleFile(input, (rules) => offlineLimiter(rules).rules))
}

async function onNode(
  given: Given,
  rules: readonly Rule[],
  against: readonly Rule[] | undefined,
): Promise<ReplayResult> {
  const [from, to, top] = [given.text('from'), given.text('to'), Number(given.text('top'))]
  const body = { rules, from, top, ...(to === undefined ? {} : { to }), ...(against === undefined ? {} : { against }) }
  return new Api(given).post<ReplayResult>(SIMULATE_PATH, body)
}

async function onLog(
  given: Given,
  logs: readonly string[],
  rules: readonly Rule[],
  against: readonly Rule[] | undefined,
  terminal: Terminal,
): Promise<LogResult> {
  try {
    return await simulateLog({
      ...{ logs, rules, against, stdin: terminal.stdin },
      format: given.text('format') as LogFormat, // one of its choices
      top: Number(given.text('top')),
      onProgress: (share, requests) => terminal.status?.(progressText(share, requests)),
    })
  } catch (error) {
    if (error instanceof SampledLog) throw new CommandError(error.message, EXIT.invalid)
    const { code, message } = error as NodeJS.ErrnoException
    if (code === undefined && !(error instanceof Error && error.message === 'it is a folder')) throw error
    throw new CommandError(`the log cannot be read: ${message}`, EXIT.invalid)
  } finally {
    terminal.status?.('')
  }
}

function progressText(share: number | undefined, requests: number): string {
  const count = `${requests.toLocaleString('en-US')} requests`
  if (share === undefined) return `replaying: ${count}`
  const done = Math.round(Math.min(1, share) * BAR_WIDTH)
  const bar = '█'.repeat(done) + '░'.repeat(BAR_WIDTH - done)
  return `replaying ${bar} ${Math.floor(share * 100)} %, ${count}`
}
