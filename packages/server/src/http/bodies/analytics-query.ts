// Query parameters of analytics: time range, step and filters, parsed once.

import type { Filter, Range } from '../../events/analytics.ts'
import { STEP_MS_MIN } from '../../events/analytics.ts'
import { EVENT_SOURCES, type EventSource, type Result } from '../../events/event.ts'
import { invalidField } from '../../problems/problem.ts'
import { durationSeconds } from '../../text/duration.ts'
import { fact, type Schema, text } from './schemas.ts'

const HOUR_MS = 3_600_000
const RANGE_MS_MAX = 400 * 24 * HOUR_MS
const STEPS_MAX = 2000
/** The default step divides the range into at most this many steps. */
const STEPS_USUAL = 120
const STEPS_MS: readonly number[] = [1, 5, 15, 60, 360, 1440].map((minutes) => minutes * STEP_MS_MIN)
const TIME_FIX = 'give a time such as 2030-01-31T12:00:00Z, or how long ago: 15m, 24h or 7d'
const STEP_FIX = 'give whole minutes, hours or days, such as 1m, 5m or 1h'

export type RangeParameters = { readonly from?: string; readonly to?: string; readonly step?: string }
export type FilterParameters = {
  readonly rule?: string
  readonly endpoint?: string
  readonly plan?: string
  readonly tenant?: string
  readonly result?: Result
  readonly source?: EventSource
  readonly limit?: string
}

export const RANGE: Readonly<Record<string, Schema>> = {
  from: {
    type: 'string',
    description: 'Start: a time (RFC 3339), or how long ago, such as 15m, 24h or 7d. Default: 1h.',
    examples: ['24h'],
    maxLength: 40,
    'x-fix': TIME_FIX,
  },
  to: {
    type: 'string',
    description: 'End, exclusive, in the same form. Default: now.',
    examples: ['2030-01-31T12:00:00Z'],
    maxLength: 40,
    'x-fix': TIME_FIX,
  },
}

export const STEP: Readonly<Record<string, Schema>> = {
  step: {
    type: 'string',
    description: `Length of a step, such as 1m or 1h; at least 1m. Default: at most ${STEPS_USUAL} steps.`,
    examples: ['5m'],
    maxLength: 10,
    'x-fix': STEP_FIX,
  },
}

export const RESULT: Schema = { type: 'string', enum: ['allowed', 'refused'], 'x-fix': 'use allowed or refused' }
export const SOURCE: Schema = {
  type: 'string',
  enum: EVENT_SOURCES,
  description: 'Where the decision was made. policy_open and policy_closed: the store did not answer, on_fail decided.',
  'x-fix': `use one of ${EVENT_SOURCES.join(', ')}`,
}

export const FILTER: Readonly<Record<string, Schema>> = {
  rule: text('Decisions by this rule; `none`: no rule decided.', 'messages_per_min', 64),
  endpoint: fact('Decisions with this endpoint pattern; `none`: no pattern.', '/api/v1/messages', 1024),
  plan: fact('Decisions for this plan; `none`: no plan.', 'free', 1024),
  tenant: fact('Decisions for this tenant; `none`: no tenant.', 'acme', 1024),
  result: RESULT,
  source: SOURCE,
}

export const LIMIT_FILTER: Readonly<Record<string, Schema>> = {
  limit: {
    type: 'string',
    description: 'Outcomes of one limit: its rule, a slash and its name. Only `rule` can be combined with it.',
    examples: ['messages_per_min/default'],
    pattern: '^[a-z0-9_.-]{1,64}/[a-z0-9_.-]{1,64}$',
    'x-fix': 'give a rule and the name of its limit, such as messages_per_min/default',
  },
}

export function rangeOf({ from = '1h', to }: RangeParameters, nowMs: number): Range {
  const fromMs = timeOf('from', from, nowMs)
  const toMs = to === undefined ? nowMs : timeOf('to', to, nowMs)
  if (fromMs >= toMs) throw invalidField('from', from, 'give a time before `to`')
  if (toMs - fromMs > RANGE_MS_MAX) throw invalidField('from', from, 'give a range of at most 400 days')
  return { fromMs, toMs }
}

export function stepOf({ step }: RangeParameters, { fromMs, toMs }: Range): number {
  const rangeMs = toMs - fromMs
  if (step === undefined) return STEPS_MS.find((ms) => rangeMs / ms <= STEPS_USUAL) ?? 1440 * STEP_MS_MIN
  const stepMs = (durationSeconds(step) ?? 0) * 1000
  if (stepMs === 0) throw invalidField('step', step, STEP_FIX)
  if (rangeMs / stepMs > STEPS_MAX) {
    throw invalidField('step', step, `give a longer step: the range has more than ${STEPS_MAX} steps`)
  }
  return stepMs
}

const LIMIT_FIX = 'remove it, or `limit`: outcomes of a limit are only known by rule'

/** Throws if `limit` is combined with a filter that its outcomes do not have. */
export function filterOf({ rule, endpoint, plan, tenant, result, source, limit }: FilterParameters): Filter {
  const others = { endpoint, plan, tenant, result, source }
  for (const [field, value] of Object.entries(others)) {
    if (limit !== undefined && value !== undefined) throw invalidField(field, value, LIMIT_FIX)
  }
  return { rule, ...others, limit }
}

function timeOf(field: string, value: string, nowMs: number): number {
  const seconds = durationSeconds(value)
  if (seconds !== undefined) return Math.max(0, nowMs - seconds * 1000)
  const ms = /^\d{4}-\d\d-\d\d/.test(value) ? Date.parse(value) : Number.NaN
  if (Number.isNaN(ms)) throw invalidField(field, value, TIME_FIX)
  return Math.max(0, ms)
}
