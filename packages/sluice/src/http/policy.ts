// The names under which limits appear in headers and in problem documents: the same in both, always printable ASCII.

import type { Decision, Outcome } from '../decision.ts'
import { percentEncoded } from './percent.ts'

/** `rule_id`, or `rule_id:limit_name` for a rule that names its limits. */
export function policyName({ ruleId, name }: Outcome): string {
  return printable(name === 'default' ? ruleId : `${ruleId}:${name}`)
}

/** The limits that a client is told about. A shadow limit is on trial: telling it would give it an effect. */
export function enforced(decision: Decision): readonly Outcome[] {
  return decision.outcomes.filter((outcome) => outcome.mode === 'enforce')
}

/** Structured fields carry ASCII from space to tilde only, and a line break would end the header. */
function printable(text: string): string {
  return /^[\x20-\x7e]*$/.test(text) ? text : text.replace(/[^\x20-\x7e]/gu, percentEncoded)
}
