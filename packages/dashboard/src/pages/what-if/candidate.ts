// The rule under study and the change to it: limit, burst and algorithm.

import { ALGORITHM_NAMES, ALGORITHMS, type AlgorithmName } from 'sluice/algorithms'
import type { PlainRule } from '../../rule-text.ts'
import { limitsOf, type Rule } from '../rules/rule.ts'

export type Change = { readonly limit: number; readonly burst: number; readonly algorithm: AlgorithmName }

/** The log and permits are stored one by one. */
const LISTED_MAX = 1000

/** Algorithms that can be compared for a rate: concurrency counts something else. */
export const COMPARED: readonly AlgorithmName[] = ALGORITHM_NAMES.filter(
  (name) => ALGORITHMS[name].storage !== 'permits',
)

/** The first limit of a rule; undefined: it has none. */
export function changeOf(rule: Rule): (Change & { readonly windowSeconds: number }) | undefined {
  const [first] = limitsOf(rule)
  if (first === undefined) return undefined
  const { limit, window_seconds: windowSeconds, burst = limit } = first
  return { limit, burst, algorithm: rule.algorithm, windowSeconds }
}

/** Moves the limit. A burst that equals it, the default, moves along. */
export function withLimit(change: Change, limit: number): Change {
  return { ...change, limit, burst: change.burst === change.limit ? limit : change.burst }
}

/** The rule with the change; its other limits stay as they are. */
export function candidateOf(rule: Rule, { limit, burst, algorithm }: Change): PlainRule {
  const { burst: _burst, limits, ...others } = rule
  const kept = algorithm === rule.algorithm ? others : withStrict(others, algorithm)
  const isBursty = ALGORITHMS[algorithm].burst
  const numbers = { limit, ...(isBursty && burst !== limit && { burst }) }
  if (limits === undefined) return { ...kept, algorithm, ...numbers }
  const changed = limits.map(({ burst: own, ...limitFields }, index) => ({
    ...limitFields,
    ...(isBursty && own !== undefined && { burst: own }),
    ...(index === 0 && numbers),
  }))
  return { ...kept, algorithm, limits: changed }
}

/** The rule as written, with the change. */
export function writtenCandidate(rule: Rule, written: PlainRule, change: Change): PlainRule {
  const isChanged = (name: string, value: unknown) => JSON.stringify(value) !== JSON.stringify(rule[name])
  const fields = Object.entries(candidateOf(rule, change)).flatMap(([name, value]): [string, unknown][] => {
    if (isChanged(name, value)) return [[name, value]]
    return name in written ? [[name, written[name]]] : []
  })
  return { ...Object.fromEntries(fields), rule_id: rule.rule_id }
}

/** Algorithms that cannot be leased require strict consistency. A replay treats all rules as strict anyway. */
function withStrict({ lease, ...rule }: PlainRule, algorithm: AlgorithmName): PlainRule {
  if (ALGORITHMS[algorithm].lease === 'none') return { ...rule, consistency: 'strict' }
  return { ...rule, ...(lease !== undefined && { lease }) }
}

/** Reason that an algorithm cannot have this limit. */
export function impossible(algorithm: AlgorithmName, { limit }: Change): string | undefined {
  const isListed = ALGORITHMS[algorithm].storage !== 'packed'
  return isListed && limit > LISTED_MAX ? `at most ${LISTED_MAX} units` : undefined
}
