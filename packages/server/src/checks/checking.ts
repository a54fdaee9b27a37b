// A check, and what is kept of it: its count, what shadow rules would have done, a refusal in the log without client
// keys in clear. Every door of the service goes through here. Synchronous whenever the store is.

import type { Decision, Limiter, Subject } from 'sluice'
import type { CheckBody } from '../http/bodies/schemas.ts'
import type { KeyHash, Log } from '../log.ts'
import type { Metrics } from '../metrics/metrics.ts'
import type { ViolationLog } from '../violations/violation-log.ts'
import type { DecisionTrail } from './decision-trail.ts'

export type CheckParts = {
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly log: Log
  readonly keyHash: KeyHash
  /** Whether the store can answer at once. */
  readonly answersSync: boolean
}

/** Where refusals are remembered. */
export type RefusalRecords = {
  readonly trail: DecisionTrail
  /** Undefined: nobody writes them down. */
  readonly violations: ViolationLog | undefined
}

export type Check = (subject: Subject, requestId?: string) => Decision | Promise<Decision>

/** `checkProxied` also remembers refusals; a check over HTTP does so itself, for it knows more of the request. */
export function createChecks(parts: CheckParts & RefusalRecords): { check: Check; checkProxied: Check } {
  const { trail, violations } = parts
  const remember = (subject: Subject, decision: Decision) => {
    const body = checkBodyOf(subject)
    trail.refused(decision, body)
    violations?.refused(decision, body)
  }
  return { check: createCheck(parts, undefined), checkProxied: createCheck(parts, remember) }
}

type Remember = ((subject: Subject, decision: Decision) => void) | undefined

function createCheck({ limiter, metrics, log, keyHash, answersSync }: CheckParts, remember: Remember): Check {
  const hasShadow = shadowsOf(limiter)
  const logsRefusals = log.isLevelEnabled('debug')
  const record = (subject: Subject, decision: Decision, startedMs: number) => {
    metrics.decided(decision.ruleId, decision.allowed, decision.source, (performance.now() - startedMs) / 1000)
    if (hasShadow()) countShadows(decision, metrics)
    if (decision.allowed) return decision
    remember?.(subject, decision)
    if (logsRefusals) logRefusal(subject, decision, log, keyHash)
    return decision
  }
  return (subject, requestId) => {
    const startedMs = performance.now()
    const decision = answersSync ? limiter.checkSync(subject, requestId) : undefined
    if (decision !== undefined) return record(subject, decision, startedMs)
    return limiter.check(subject, requestId).then((later) => record(subject, later, startedMs))
  }
}

function checkBodyOf({ user, path, method, ip, apiKey, tenant, plan }: Subject): CheckBody {
  const facts = { client_id: user, endpoint: path, method, ip_address: ip, api_key: apiKey, tenant, plan }
  return Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== undefined))
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
