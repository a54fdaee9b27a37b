// Runs commands on a rule file with an in-memory limiter, without a node.

import { type Limiter, LimiterError } from 'sluice'
import { ProblemError } from '../problems/problem.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { offlineLimiter } from '../rules/offline-limiter.ts'
import { errorLines, type RuleInput, useRuleFile } from '../rules/rule-file.ts'
import { CommandError, type Flag } from './command.ts'

const STDIN = '-'

export const RULES_FLAG: Flag = {
  name: 'rules',
  value: '<file>',
  help: 'Use the rules of this file (- for standard input) and a memory store instead of a node.',
  isFile: true,
}

export async function ruleInput(name: string, terminal: Terminal): Promise<RuleInput> {
  return name === STDIN ? { name: 'stdin', bytes: await terminal.input() } : name
}

export async function withRuleFile<T>(input: RuleInput, work: (limiter: Limiter) => Promise<T>): Promise<T> {
  const limiter = ruleFileErrors(() => useRuleFile(input, offlineLimiter))
  try {
    return await work(limiter)
  } catch (error) {
    if (error instanceof LimiterError || error instanceof ProblemError)
      throw new CommandError(error.message.replace(/^\[\w+\] /, ''), EXIT.invalid)
    throw error
  } finally {
    await limiter.close()
  }
}

/** Turns errors of a rule file into a CommandError. */
export function ruleFileErrors<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof LimiterError)) throw error
    throw new CommandError(`invalid rules\n${errorLines(error).join('\n')}`, EXIT.invalid)
  }
}
