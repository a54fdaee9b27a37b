// Detects that this node burns an error budget fast: the condition of the alerts Sluice…BurnFast over one hour, from
// the figures of one node instead of a fleet.

import type { Increase } from './check-samples.ts'
import type { WebhookEvent } from './webhooks.ts'

export const BURN = {
  longMs: 3_600_000,
  shortMs: 300_000,
  /** Uses up 2 % of the budget of 30 days in an hour. */
  rate: 14.4,
  /** Ends below this rate over the short window. */
  endRate: 7.2,
  /** Decisions a second over the long window. */
  decisionsPerSecond: 1,
} as const

/** `budget`: share of decisions, or of time, that may be bad. */
export const SLOS = {
  availability: { budget: 0.0001, of: 'decisions' },
  latency: { budget: 0.01, of: 'decisions' },
  propagation: { budget: 0.01, of: 'time' },
  drift: { budget: 0.01, of: 'time' },
} as const

/** Rules are stale if their source confirmed them longer ago: the objective of the propagation SLO. */
const STALE_SECONDS = 60
/** Objective of the drift SLO: share of the charged units that expire in a minute, with enough of them. */
const DRIFT = { share: 0.05, unitsPerSecond: 10 } as const

export function isStale(ageSeconds: number): boolean {
  return ageSeconds > STALE_SECONDS
}

/** `minute`: increase of the last minute. */
export function isDrifting({ unitsCharged, unitsExpired, spanMs }: Increase): boolean {
  return unitsCharged > (DRIFT.unitsPerSecond * spanMs) / 1000 && unitsExpired > DRIFT.share * unitsCharged
}

/** Decisions or seconds. */
export type Share = { readonly bad: number; readonly of: number }

export function badDecisions(slo: 'availability' | 'latency', { byPolicy, slow, decided }: Increase): Share {
  return { bad: slo === 'availability' ? byPolicy : slow, of: decided }
}

export type SloName = keyof typeof SLOS

/** `sinceMs` of the burn; undefined while there is none. */
export type BurnState = { readonly sinceMs: number | undefined }

export type BurnInput = { readonly hour: Share; readonly fiveMinutes: Share; readonly nowMs: number }

export type BurnStep = { readonly state: BurnState; readonly event?: WebhookEvent }

export function nextBurnState(slo: SloName, state: BurnState, { hour, fiveMinutes, nowMs }: BurnInput): BurnStep {
  const [long, short] = [burnRate(slo, hour), burnRate(slo, fiveMinutes)]
  if (state.sinceMs !== undefined) {
    if (short >= BURN.endRate) return { state }
    const data = { slo, burn_rate_5m: rounded(short), seconds: Math.round((nowMs - state.sinceMs) / 1000) }
    return { state: { sinceMs: undefined }, event: { type: 'slo.recovered', data } }
  }
  const ofTime = SLOS[slo].of === 'time'
  const isBusy = ofTime || hour.of > (BURN.decisionsPerSecond * BURN.longMs) / 1000
  if (!isBusy || long <= BURN.rate || short <= BURN.rate) return { state }
  const bad = ofTime ? { bad_seconds: hour.bad } : { bad: hour.bad, checks: hour.of }
  const data = { slo, burn_rate_1h: rounded(long), burn_rate_5m: rounded(short), ...bad }
  return { state: { sinceMs: nowMs }, event: { type: 'slo.burn', data } }
}

function burnRate(slo: SloName, { bad, of }: Share): number {
  return of === 0 ? 0 : bad / of / SLOS[slo].budget
}

function rounded(rate: number): number {
  return Number(rate.toFixed(1))
}
