// Detects that this node burns an error budget fast: the condition of the alerts Sluice…BurnFast over one hour, from
// the counts of one node instead of a fleet.

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

/** `budget`: share of decisions that may be bad. */
export const SLOS = {
  availability: { budget: 0.0001, bad: ({ byPolicy }: Increase): number => byPolicy },
  latency: { budget: 0.01, bad: ({ slow }: Increase): number => slow },
} as const

export type SloName = keyof typeof SLOS

/** `sinceMs` of the burn; undefined while there is none. */
export type BurnState = { readonly sinceMs: number | undefined }

export type BurnInput = { readonly hour: Increase; readonly fiveMinutes: Increase; readonly nowMs: number }

export type BurnStep = { readonly state: BurnState; readonly event?: WebhookEvent }

export function nextBurnState(slo: SloName, state: BurnState, { hour, fiveMinutes, nowMs }: BurnInput): BurnStep {
  const [long, short] = [burnRate(slo, hour), burnRate(slo, fiveMinutes)]
  if (state.sinceMs !== undefined) {
    if (short >= BURN.endRate) return { state }
    const data = { slo, burn_rate_5m: rounded(short), seconds: Math.round((nowMs - state.sinceMs) / 1000) }
    return { state: { sinceMs: undefined }, event: { type: 'slo.recovered', data } }
  }
  const isBusy = hour.decided > (BURN.decisionsPerSecond * BURN.longMs) / 1000
  if (!isBusy || long <= BURN.rate || short <= BURN.rate) return { state }
  const data = {
    slo,
    burn_rate_1h: rounded(long),
    burn_rate_5m: rounded(short),
    bad: SLOS[slo].bad(hour),
    checks: hour.decided,
  }
  return { state: { sinceMs: nowMs }, event: { type: 'slo.burn', data } }
}

function burnRate(slo: SloName, increase: Increase): number {
  const { budget, bad } = SLOS[slo]
  return increase.decided === 0 ? 0 : bad(increase) / increase.decided / budget
}

function rounded(rate: number): number {
  return Number(rate.toFixed(1))
}
