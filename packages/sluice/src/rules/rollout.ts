// Rollouts as data: a staged or applied change of one rule, and the share of keys that it applies to.

import { hasPermits } from '../algorithms/traits.ts'
import type { Sliced } from '../slices.ts'
import { FieldErrors } from './field-errors.ts'
import { parsing } from './parse.ts'
import type { Rule } from './rule.ts'
import type { RuleInput } from './rule-input.ts'

export type Rollout = {
  readonly ruleId: string
  /** Salt of the draw, in hex. The same on all nodes, and for the whole life of the rollout. */
  readonly salt: string
  /** Share of keys, 0 to 1, whose requests are charged to both versions. */
  readonly pairShare: number
  /** Grows when a rollout is retried with the same salt, which restarts the comparison. Default: 1. */
  readonly attempt?: number | undefined
} & (StagedChange | AppliedChange)

/** The rule set has the current version, or none if the rule is new. */
type StagedChange = {
  /** null: the rule is to be deleted. */
  readonly candidate: RuleInput | null
  /** Share of keys, 0 to 1, under the candidate. 0: shadow. */
  readonly share: number
}

/** The rule set has the candidate already, or none if the rule was deleted. */
type AppliedChange = {
  /** null: the rule is new. */
  readonly previous: RuleInput | null
}

/** A valid rollout. */
export type ParsedRollout = {
  readonly ruleId: string
  readonly salt: string
  readonly attempt: number
  readonly pairShare: number
  readonly share: number
  /** Whether the rule set contains the candidate instead of the current version. */
  readonly applied: boolean
  /** The version that is not in the rule set. */
  readonly other: Rule | undefined
}

const SALT = /^[0-9a-f]{1,128}$/i
const FIELDS: readonly string[] = ['ruleId', 'salt', 'pairShare', 'attempt', 'candidate', 'share', 'previous']
export const ROLLOUTS_MAX = 10_000

/** Validates rollouts. Throws RULE_INVALID with all field errors. */
export function* parsingRollouts(rollouts: readonly Rollout[]): Sliced<ParsedRollout[]> {
  const errors = new FieldErrors()
  if (!Array.isArray(rollouts) || rollouts.length > ROLLOUTS_MAX) {
    errors.add('rollouts', typeof rollouts, `give a list of at most ${ROLLOUTS_MAX} rollouts`)
    errors.throwIfAny('RULE_INVALID')
  }
  const seen = new Set<string>()
  rollouts.forEach((rollout, index) => {
    const at = errors.at(`rollouts[${index}]`)
    checkRollout(rollout, at)
    if (seen.has(rollout.ruleId)) at.add('ruleId', rollout.ruleId, 'give one rollout per rule')
    seen.add(rollout.ruleId)
  })
  errors.throwIfAny('RULE_INVALID')
  const others = rollouts.map(otherOf)
  const rules = yield* parsing(others.filter((other) => other !== null))
  const byId = new Map(rules.map((rule) => [rule.rule_id, rule]))
  const parsed = rollouts.map((rollout, index): ParsedRollout => {
    const { ruleId, salt, pairShare, attempt = 1 } = rollout
    const other = others[index] === null ? undefined : byId.get(ruleId)
    if (others[index] !== null && other === undefined)
      errors.add(`rollouts[${index}].ruleId`, ruleId, 'give the rule_id of its other version')
    const applied = !('candidate' in rollout)
    return { ruleId, salt, attempt, pairShare, share: applied ? 1 : rollout.share, applied, other }
  })
  errors.throwIfAny('RULE_INVALID')
  return parsed
}

function otherOf(rollout: Rollout): RuleInput | null {
  return 'candidate' in rollout ? rollout.candidate : rollout.previous
}

function checkRollout(rollout: Rollout, errors: FieldErrors): void {
  for (const [name, value] of Object.entries(rollout))
    if (!FIELDS.includes(name)) errors.add(name, value, 'unknown field; remove it')
  const { ruleId, salt, pairShare, attempt = 1 } = rollout
  if (!Number.isSafeInteger(attempt) || attempt < 1) errors.add('attempt', attempt, 'give a whole number from 1')
  if (typeof ruleId !== 'string' || ruleId === '') errors.add('ruleId', ruleId, 'give the id of a rule')
  if (typeof salt !== 'string' || !SALT.test(salt)) errors.add('salt', salt, 'give 1 to 128 hex digits')
  checkShare('pairShare', pairShare, errors)
  if ('candidate' in rollout === 'previous' in rollout) {
    errors.add('candidate', undefined, 'give either candidate and share, or previous')
  } else if ('candidate' in rollout) checkShare('share', rollout.share, errors)
  else if ('share' in rollout) errors.add('share', rollout.share, 'remove it: an applied change applies to every key')
}

function checkShare(field: string, share: unknown, errors: FieldErrors): void {
  if (typeof share !== 'number' || !(share >= 0 && share <= 1)) errors.add(field, share, 'give a number from 0 to 1')
}

/** Whether requests can be charged to two versions of the rule: its state must be in one bucket of the store. */
export function isPairable({ algorithm, consistency, shards, spread }: Rule): boolean {
  return !hasPermits({ algorithm }) && consistency !== 'local' && shards === 1 && spread === 'regional'
}

/** Facts that many clients share. */
const SHARED_FACTS: readonly string[] = ['endpoint', 'method', 'plan']

/** Reason that the candidate cannot apply to a share of the keys; undefined if it can. */
export function canaryProblem({ scope }: Rule): string | undefined {
  const [first] = scope
  if (first !== undefined && !SHARED_FACTS.includes(first)) return undefined
  return 'one bucket for all clients: use shadow steps'
}
