// Cost of a request: units that it takes from each limit of a rule.

import { subjectInvalid } from '../errors.ts'
import type { Subject } from '../subject.ts'
import type { CompiledRule } from './compile.ts'
import { ATTRIBUTE } from './rule.ts'

export const COST_MAX = 1_000_000_000

/**
 * Units that a rule charges for a request of this cost: the cost times the rule's own, a number or an attribute. Capped
 * where integers stop being exact, far above every capacity.
 */
export function unitsOf(rule: CompiledRule, subject: Subject, cost: number): number {
  const own = typeof rule.cost === 'number' ? rule.cost : attributeCost(rule.cost(subject), rule)
  return Math.min(cost * own, Number.MAX_SAFE_INTEGER)
}

export function costOf({ cost }: Subject): number {
  return cost === undefined ? 1 : checkedCost('cost', cost, cost)
}

function checkedCost(field: string, cost: number, given: unknown): number {
  if (Number.isSafeInteger(cost) && cost >= 1 && cost <= COST_MAX) return cost
  throw subjectInvalid(field, given, `give a whole number from 1 to ${COST_MAX}`)
}

/** 1 without the attribute. */
function attributeCost(text: string | undefined, { rule: { cost } }: CompiledRule): number {
  if (text === undefined) return 1
  const name = String(cost)
  const units = Number(text)
  const given = Number.isFinite(units) ? units : text // a number is no secret, and errors may show it
  return checkedCost(name.startsWith(ATTRIBUTE) ? name : `${ATTRIBUTE}${name}`, units, given)
}
