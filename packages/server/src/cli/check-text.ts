// Formats the response to a check.

import type { CheckAnswer, PlainOutcome } from '../checks/answer.ts'
import type { Terminal } from '../process/terminal.ts'
import { aligned } from '../text/aligned.ts'
import { paintOn } from './paint.ts'

export function checkText(answer: CheckAnswer, terminal: Terminal): string {
  const { allowed, remaining, limit, retry_after: seconds, rule_id: ruleId, delay_ms: delayMs = 0 } = answer
  const paint = paintOn(terminal)
  const by = answer.source === 'policy' ? ' (Redis is unreachable; on_fail applied)' : ''
  if (!allowed) {
    const wait = seconds === null ? 'waiting does not help' : `try again in ${seconds} s`
    return `${paint('red', 'refused')} by ${ruleId}: ${wait}${by}`
  }
  const delay = delayMs === 0 ? '' : `, after a delay of ${delayMs} ms`
  const left = limit === null ? 'no rule applies' : `${remaining} of ${limit} left`
  return `${paint('green', 'allowed')}: ${left}${delay}${by}`
}

/** One row per limit that was checked. */
export function limitRows(limits: readonly PlainOutcome[]): string[] {
  return aligned(
    limits.map(({ rule_id: ruleId, name, scope, mode, allowed, limit, remaining, window_ms: windowMs }) => [
      name === 'default' ? ruleId : `${ruleId} (${name})`,
      `${remaining} of ${limit} left, window ${windowMs / 1000} s`,
      scope,
      [...(allowed ? [] : ['refuses']), ...(mode === 'shadow' ? ['shadow'] : [])].join(', '),
    ]),
  )
}
