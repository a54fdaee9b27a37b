// Formats the response to a check.

import type { CheckAnswer, PlainOutcome } from '../checks/answer.ts'
import type { PlainException } from '../checks/plain-exception.ts'
import type { Terminal } from '../process/terminal.ts'
import { aligned } from '../text/aligned.ts'
import { paintOn } from './paint.ts'

export function checkText(answer: CheckAnswer, terminal: Terminal): string {
  const { allowed, remaining, limit, retry_after: seconds, rule_id: ruleId, delay_ms: delayMs = 0 } = answer
  const paint = paintOn(terminal)
  const by = answer.source === 'policy' ? ' (Redis is unreachable; on_fail applied)' : ''
  if (!allowed) {
    const wait = seconds === null ? 'waiting does not help' : `try again in ${seconds} s`
    const ban = answer.override_id === undefined ? '' : `; banned by override ${answer.override_id}`
    return `${paint('red', 'refused')} by ${ruleId ?? 'an override'}: ${wait}${ban}${by}`
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

/** One row per exception that changes the decision. */
export function exceptionRows(exceptions: readonly PlainException[]): string[] {
  return aligned(
    exceptions.map((exception) => {
      const { kind, override_id, bypass_id, signal, rule_id: ruleId } = exception
      return [kind, override_id ?? bypass_id ?? signal ?? 'global', ruleId ?? '(all rules)', effectText(exception)]
    }),
  )
}

type Effect = Pick<PlainException, 'limit' | 'limit_name' | 'factor' | 'ban'>

/** `limit 500`, `× 2`, `ban 403` or `exempt`. */
export function effectText({ limit, limit_name: name, factor, ban }: Effect): string {
  if (limit !== undefined) return name === undefined ? `limit ${limit}` : `limit ${name} ${limit}`
  if (factor !== undefined) return `× ${factor}`
  return ban === undefined ? 'exempt' : `ban ${ban.status}`
}
