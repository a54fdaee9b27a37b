// Endpoint pattern of a decision, for metrics and events. Patterns come from rules, so their number is bounded and no
// path of a client becomes a label.

import type { Decision, Limiter, Outcome } from 'sluice'
import { followRules } from '../rules/follow-rules.ts'

/** Name of the pattern if no matched rule has one. */
export const NO_PATTERN = 'none'
/** Pattern of a rule without `endpoint_pattern`: matches every path. */
const EVERY_PATH = '/**'

/** A pattern and how specific it is: the higher rank wins. */
type Ranked = { readonly pattern: string; readonly rank: number }

const UNKNOWN: Ranked = { pattern: NO_PATTERN, rank: -1 }

export type EndpointPattern = (decision: Decision) => string

/**
 * Returns a function that names the most specific pattern among the rules of a decision: more literal segments, then
 * more parameters, then no `**`, then the pattern that sorts first. Ranks are computed once per rule and version.
 */
export function createEndpointPattern(limiter: Pick<Limiter, 'rule' | 'version'>): EndpointPattern {
  const activeRanks = followRules(limiter, () => new Map<string, Ranked>())
  const rankOf = (ranks: Map<string, Ranked>, ruleId: string): Ranked => {
    const known = ranks.get(ruleId)
    if (known !== undefined) return known
    const rule = limiter.rule(ruleId)
    // A rule that was deleted during the check is not cached: ids in the map are those of active rules.
    if (rule === undefined) return UNKNOWN
    const ranked = rankedPattern(rule.endpoint_pattern)
    ranks.set(ruleId, ranked)
    return ranked
  }
  return ({ outcomes }) => {
    const ranks = activeRanks()
    let best = UNKNOWN
    for (let index = 0; index < outcomes.length; index += 1) {
      const ranked = rankOf(ranks, (outcomes[index] as Outcome).ruleId) // in range
      if (ranked.rank > best.rank || (ranked.rank === best.rank && ranked.pattern < best.pattern)) best = ranked
    }
    return best.pattern
  }
}

function rankedPattern(pattern: string): Ranked {
  if (pattern === EVERY_PATH) return UNKNOWN
  let [literals, parameters, rest] = [0, 0, 0]
  for (const segment of pattern.split('/').slice(1)) {
    if (segment === '**') rest = 1
    else if (segment === '*' || segment.startsWith(':')) parameters += 1
    else literals += 1
  }
  // One number, so that comparing is cheap: a pattern has fewer than 1000 segments.
  return { pattern, rank: literals * 10_000 + parameters * 10 + (1 - rest) }
}
