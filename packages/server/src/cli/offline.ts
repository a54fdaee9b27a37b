// A limiter of a rule file, in memory, for commands that need no server: what it counts is gone when the command ends.

import { type Limiter, LimiterError } from 'sluice'
import { ProblemError } from '../problems/problem.ts'
import { offlineLimiter } from '../rules/offline-limiter.ts'
import { mistakesIn, type RuleInput, useRuleFile } from '../rules/rule-file.ts'
import { CommandError, EXIT, type Flag } from './command.ts'
import type { Terminal } from './terminal.ts'

const STDIN = '-'

export const RULES_FLAG: Flag = {
  name: 'rules',
  value: '<file>',
  help: 'Do it here, with the rules of a file (-: standard input) and counters in memory, instead of asking a node.',
  isFile: true,
}

/** The rule file that an argument names. */
export async function ruleInput(name: string, terminal: Terminal): Promise<RuleInput> {
  return name === STDIN ? { name: 'stdin', bytes: await terminal.input() } : name
}

export async function withRuleFile<T>(input: RuleInput, work: (limiter: Limiter) => Promise<T>): Promise<T> {
  const limiter = ruleFileErrors(() => useRuleFile(input, offlineLimiter))
  try {
    return await work(limiter)
  } catch (error) {
    if (error instanceof LimiterError || error instanceof ProblemError)
      throw new CommandError(error.message.replace(/^\[\w+\] /, ''), EXIT.wrong)
    throw error
  } finally {
    await limiter.close()
  }
}

/** What is wrong with a rule file, told as it is elsewhere. */
export function ruleFileErrors<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof LimiterError)) throw error
    throw new CommandError(`the rules are wrong\n${mistakesIn(error).join('\n')}`, EXIT.wrong)
  }
}
