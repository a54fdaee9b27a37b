// A check, and what is kept of it: its count, what shadow rules would have done, refusals for whoever asks later, and
// in the log, there without client keys in clear. Every door of the service goes through here. Synchronous whenever the
// store is.

import type { Decision, Limiter, Subject } from 'sluice'
import type { KeyHash, Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { ViolationLog } from '../violations/violation-log.ts'
import type { DecisionTrail } from './decision-trail.ts'

export type CheckParts = {
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly log: Log
  readonly keyHash: KeyHash
  readonly trail: DecisionTrail
  /** Undefined: nobody writes refusals down. */
  readonly violations: ViolationLog | undefined
}

/** What a door makes of the limiter's decision: that is what counts. */
type Judge = (decided: Decision) => Decision

export type Check = (subject: Subject, requestId?: string, judge?: Judge) => Decision | Promise<Decision>

export function createCheck(parts: CheckParts): Check {
  const { limiter, metrics, log, keyHash, trail, violations } = parts
  const hasShadow = shadowsOf(limiter)
  const logsRefusals = log.isLevelEnabled('debug')
  const record = (subject: Subject, decided: Decision, judge: Judge, startedMs: number) => {
    const decision = judge(decided)
    metrics.decided(decision.ruleId, decision.allowed, decision.source, (performance.now() - startedMs) / 1000)
    if (hasShadow()) countShadows(decision, metrics)
    if (decision.allowed) return decision
    trail.refused(decision, subject)
    violations?.refused(decision, subject, decided)
    if (logsRefusals) logRefusal(subject, decision, log, keyHash)
    return decision
  }
  return (subject, requestId, judge = asDecided) => {
    const startedMs = performance.now()
    const decided = limiter.decide(subject, requestId)
    if (decided instanceof Promise) return decided.then((later) => record(subject, later, judge, startedMs))
    return record(subject, decided, judge, startedMs)
  }
}

function asDecided(decided: Decision): Decision {
  return decided
}

/** Reads the rules again only when they have changed. */
function shadowsOf(limiter: Limiter): () => boolean {
  let version: number | undefined
  let hasShadow = false
  return () => {
    if (version === limiter.version) return hasShadow
    version = limiter.version
    hasShadow = limiter.rules.some(({ enabled, mode }) => enabled && mode === 'shadow')
    return hasShadow
  }
}

function countShadows({ outcomes }: Decision, metrics: Metrics): void {
  for (const { mode, allowed, ruleId } of outcomes) if (mode === 'shadow' && !allowed) metrics.shadowRefused(ruleId)
}

function logRefusal({ ip, user, apiKey, tenant }: Subject, decision: Decision, log: Log, keyHash: KeyHash): void {
  const keys = Object.entries({ ip, user, api_key: apiKey, tenant }).flatMap(([fact, value]) => {
    return value === undefined ? [] : [[fact, keyHash(fact, value)]]
  })
  const { requestId: request_id, ruleId: rule_id, limit, version } = decision
  log.debug({ request_id, rule_id, limit, version, keys: Object.fromEntries(keys) }, 'refused')
}
