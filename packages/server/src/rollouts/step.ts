// Steps of a rollout: parsed once, with every mistake named. A step without a time waits for `promote`; after the last
// step the change always applies to all keys, whatever its share was.

import { durationMs, durationText } from '../text/duration.ts'

export const STEP_KINDS = ['shadow', 'canary', 'guard'] as const
/** Features that nodes need to follow a rollout. */
export const ROLLOUT_FEATURES: readonly string[] = STEP_KINDS.map((kind) => `rollout.${kind}`)

/** `forMs` undefined: the step ends by hand only. `maxMs`: a step that has not ended after this time pauses. */
export type Step = {
  /** shadow: evaluated and never enforced. canary: enforced for a share of keys. guard: applied, under guard. */
  readonly kind: (typeof STEP_KINDS)[number]
  /** Share of keys under the candidate, 0 to 1. */
  readonly share: number
  readonly forMs: number | undefined
  readonly maxMs: number | undefined
}

/** Step as written in the API. */
export type PlainStep = {
  readonly shadow?: string | true
  readonly canary?: string
  readonly guard?: string
  readonly for?: string
  readonly max?: string
}

export type StepMistake = { readonly field: string; readonly value: unknown; readonly fix: string }

export const STEPS_MAX = 20
/** A step waits this many times its duration for enough pairs. */
const MAX_PER_FOR = 4
const TIME_FIX = 'give a whole number and a unit, s, m, h or d, such as 10m'
const SHARE_FIX = 'give a share of keys above 0% and up to 100%, such as "1%"'
const NAMES: readonly string[] = ['shadow', 'canary', 'for', 'max']

const TEN_MINUTES_MS = 600_000

/** Steps of a proposal that names none. Rules with a global bucket cannot have a canary. */
export function defaultSteps(canaryIsPossible: boolean): readonly Step[] {
  const shadow = stepOf('shadow', 0, TEN_MINUTES_MS)
  if (!canaryIsPossible) return [{ ...shadow, forMs: 3 * TEN_MINUTES_MS, maxMs: 3 * MAX_PER_FOR * TEN_MINUTES_MS }]
  return [shadow, ...[0.01, 0.1, 0.5].map((share) => stepOf('canary', share, TEN_MINUTES_MS))]
}

/** The only step of a change that is applied already. */
export function stepUnderGuard(forMs: number): Step {
  return { kind: 'guard', share: 1, forMs, maxMs: forMs }
}

function stepOf(kind: Step['kind'], share: number, forMs: number | undefined, maxMs?: number): Step {
  return { kind, share, forMs, maxMs: maxMs ?? (forMs === undefined ? undefined : MAX_PER_FOR * forMs) }
}

/** Returns the steps, or every mistake. */
export function parseSteps(value: unknown): readonly Step[] | { readonly mistakes: readonly StepMistake[] } {
  if (!Array.isArray(value) || value.length === 0 || value.length > STEPS_MAX)
    return { mistakes: [{ field: 'steps', value, fix: `give a list of 1 to ${STEPS_MAX} steps` }] }
  const mistakes: StepMistake[] = []
  const steps = value.map((item: unknown, index) => parseStep(item, `steps[${index}]`, mistakes))
  steps.forEach((step, index) => {
    const before = steps[index - 1]
    if (step === undefined || before === undefined) return
    const field = `steps[${index}]`
    if (step.kind === 'shadow' && before.kind === 'canary')
      mistakes.push({ field, value: value[index], fix: 'put shadow steps before canary steps' })
    else if (step.share < before.share)
      mistakes.push({
        field: `${field}.canary`,
        value: shareText(step.share),
        fix: 'give at least the share before it',
      })
  })
  return mistakes.length > 0 ? { mistakes } : steps.filter((step) => step !== undefined)
}

function parseStep(item: unknown, at: string, mistakes: StepMistake[]): Step | undefined {
  const before = mistakes.length
  if (typeof item !== 'object' || item === null || Array.isArray(item)) {
    mistakes.push({ field: at, value: item, fix: 'give an object with shadow or canary' })
    return undefined
  }
  const { shadow, canary, for: time, max } = item as Record<string, unknown>
  for (const name of Object.keys(item)) {
    if (!NAMES.includes(name))
      mistakes.push({ field: `${at}.${name}`, value: (item as Record<string, unknown>)[name], fix: 'remove it' })
  }
  if ((shadow === undefined) === (canary === undefined))
    mistakes.push({ field: at, value: item, fix: 'give either shadow or canary' })
  const timeOf = (name: string, given: unknown) => {
    if (given === undefined) return undefined
    const ms = typeof given === 'string' ? durationMs(given) : undefined
    if (ms === undefined) mistakes.push({ field: `${at}.${name}`, value: given, fix: TIME_FIX })
    return ms
  }
  const maxMs = timeOf('max', max)
  const forMs = shadow === undefined || shadow === true ? timeOf('for', time) : timeOf('shadow', shadow)
  if (shadow !== undefined && shadow !== true && time !== undefined)
    mistakes.push({ field: `${at}.for`, value: time, fix: 'remove it: shadow gives the time' })
  const share = canary === undefined ? 0 : shareOf(canary)
  if (share === undefined) mistakes.push({ field: `${at}.canary`, value: canary, fix: SHARE_FIX })
  if (maxMs !== undefined && maxMs < (forMs ?? 0))
    mistakes.push({ field: `${at}.max`, value: max, fix: 'give at least the time of the step' })
  return mistakes.length > before
    ? undefined
    : stepOf(canary === undefined ? 'shadow' : 'canary', share ?? 0, forMs, maxMs)
}

/** `1%` and 1 are one per cent. */
function shareOf(value: unknown): number | undefined {
  const text = typeof value === 'number' ? `${value}%` : value
  const [, digits] = typeof text === 'string' ? (/^(\d{1,3}(?:\.\d{1,4})?)\s*%$/.exec(text) ?? []) : []
  const percent = Number(digits ?? Number.NaN)
  return percent > 0 && percent <= 100 ? percent / 100 : undefined
}

/** `12.5%` */
export function shareText(share: number): string {
  return `${Number((share * 100).toFixed(4))}%`
}

export function plainStep({ kind, share, forMs, maxMs }: Step): PlainStep {
  const max = maxMs === undefined ? {} : { max: durationText(maxMs) }
  if (kind === 'guard') return { guard: durationText(forMs ?? 0) }
  if (kind === 'shadow') return { shadow: forMs === undefined ? true : durationText(forMs), ...max }
  return { canary: shareText(share), ...(forMs === undefined ? {} : { for: durationText(forMs) }), ...max }
}

/** `canary 10% for 10m`, for sentences. */
export function stepText({ kind, share, forMs }: Step): string {
  const what = kind === 'canary' ? `canary ${shareText(share)}` : kind
  return `${what} ${forMs === undefined ? 'until promoted' : `for ${durationText(forMs)}`}`
}
