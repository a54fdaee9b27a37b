// An answer in words, for people.

import type { CheckAnswer, PlainOutcome } from '../http/bodies/answer.ts'
import { aligned } from '../text/aligned.ts'
import { paintOn } from './paint.ts'
import type { Terminal } from './terminal.ts'

export function verdictOf(answer: CheckAnswer, terminal: Terminal): string {
  const { allowed, remaining, limit, retry_after: seconds, rule_id: ruleId, delay_ms: delayMs = 0 } = answer
  const paint = paintOn(terminal)
  const by = answer.source === 'policy' ? ' (the counters cannot be reached: on_fail decides)' : ''
  if (!allowed) {
    const wait = seconds === null ? 'waiting will not help' : `try again in ${seconds} s`
    return `${paint('red', 'refused')} by ${ruleId}: ${wait}${by}`
  }
  const delay = delayMs === 0 ? '' : `, to be served ${delayMs} ms later`
  const left = limit === null ? 'no rule is in its way' : `${remaining} of ${limit} left`
  return `${paint('green', 'allowed')}: ${left}${delay}${by}`
}

/** One row per limit that was looked at. */
export function limitRows(limits: readonly PlainOutcome[]): string[] {
  return aligned(
    limits.map(({ rule_id: ruleId, name, scope, mode, allowed, limit, remaining, window_ms: windowMs }) => [
      name === 'default' ? ruleId : `${ruleId} (${name})`,
      `${remaining} of ${limit} left, ${windowMs / 1000} s`,
      scope,
      [...(allowed ? [] : ['refuses']), ...(mode === 'shadow' ? ['shadow'] : [])].join(', '),
    ]),
  )
}
