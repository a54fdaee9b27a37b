// Explains in one sentence why a request was refused or admitted.

import type { AppliedException } from '../../exceptions/applied.ts'
import { fullCount, span } from '../../format.ts'
import type { DecisionEvent } from './event.ts'

/** `exceptions`: those of the decision, if it is still known. */
export function sentenceOf(event: DecisionEvent, exceptions: readonly AppliedException[] = []): string {
  if (event.operation === 'refund') {
    return `The client of the request gave back ${unitsText(event.request_cost)}. The check is an event of its own.`
  }
  if (event.operation === 'reset') return `The buckets of this key for ${event.rule_id} started again, full.`
  const { allowed, rule_id: rule, limit_count: limit, shadow_refused_by: shadow } = event
  const more = shadow === null ? '' : ` In shadow mode, ${shadow} would have refused it.`
  if (!allowed && (rule === null || exceptions.some(({ ban }) => ban !== undefined))) return banSentence(rule) + more
  if (rule === null || limit === null) return `No enforced rule matched this request, so it was allowed.${more}`
  return numbersSentence(event, rule, limit) + more
}

/** Only a ban from all rules refuses without naming a rule. */
function banSentence(rule: string | null): string {
  const from = rule === null ? 'Every request of it is refused, whatever the rules allow.' : `Rule: ${rule}.`
  return `The client is banned by an override. ${from} Waiting will not help.`
}

function numbersSentence(event: DecisionEvent, rule: string, limit: number): string {
  const { limit_name: name, remaining, cost, retry_after_ms: retryMs } = event
  const limitText = `${fullCount(limit)} units${name === null || name === 'default' ? '' : ` (${name})`}`
  if (event.allowed) return `Of ${limitText} of ${rule}, ${fullCount(remaining)} were left after this request.`
  const units = `${fullCount(cost)} ${cost === 1 ? 'unit' : 'units'}`
  const wait = retryMs === null ? 'Waiting will not help.' : `Enough units after ${waitText(retryMs)}.`
  return `The request needed ${units}; of ${limitText} of ${rule}, ${fullCount(remaining)} were left. ${wait}`
}

/** Units of a refund; null: all that the request took. */
export function unitsText(units: number | null): string {
  if (units === null) return 'all of its units'
  return `${fullCount(units)} ${units === 1 ? 'unit' : 'units'} of each limit`
}

function waitText(ms: number): string {
  return ms < 1000 ? `${Math.ceil(ms)} ms` : span(ms / 1000)
}
