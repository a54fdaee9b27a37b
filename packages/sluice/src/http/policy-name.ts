// Names of limits in headers and problem documents: the same in both, always printable ASCII.

import { percentEncoded } from '../canonical/percent.ts'
import type { Decision, Outcome } from '../decision.ts'

/** `rule_id`, or `rule_id:limit_name` for a rule that names its limits. */
export function policyName({ ruleId, name }: Outcome): string {
  return printable(name === 'default' ? ruleId : `${ruleId}:${name}`)
}

/** The limits that clients see. Shadow limits stay hidden: reporting them would give them an effect. */
export function enforced(decision: Decision): readonly Outcome[] {
  return decision.outcomes.filter((outcome) => outcome.mode === 'enforce')
}

/** Structured fields allow ASCII from space to tilde only; a line break would end the header. */
function printable(text: string): string {
  return /^[\x20-\x7e]*$/.test(text) ? text : text.replace(/[^\x20-\x7e]/gu, percentEncoded)
}
