// Fixtures of rollout tests: rollouts of rule `a`, and the results of their pairs.

import { type Decision, pairsOf, type Rollout, type Subject } from 'sluice'
import { type Bench, bench, type Fields } from '../limiter-fixture.ts'

export const SALT = '00112233445566778899aabbccddeeff'
export const USER = { rule_id: 'a', scope: 'per_user', window_seconds: 60 }

export type Staged = { readonly candidate: Fields | null; readonly share: number; readonly pairShare?: number }

export function staged({ pairShare = 1, ...change }: Staged, ruleId = 'a'): Rollout {
  return { ruleId, salt: SALT, pairShare, ...change }
}

export async function rolling(rules: readonly Fields[], ...rollouts: Rollout[]): Promise<Bench> {
  const made = bench(rules)
  await made.limiter.setRollouts(rollouts)
  return made
}

/** Denials of the only pair: [by the current version, by the candidate]. */
export function denials(decision: Decision): [boolean, boolean] | undefined {
  const [pair] = pairsOf(decision)
  return pair && [pair.currentDenied, pair.candidateDenied]
}

export function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index))
}

export const ALICE: Subject = { user: 'alice' }
