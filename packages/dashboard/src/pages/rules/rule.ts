// Rules and proposals as the API sends them, and short texts about them.

import { type AlgorithmName, hasPermits } from 'sluice/algorithms'
import { fullCount, span } from '../../format.ts'
import type { PlainRule } from '../../rule-text.ts'

export type PlainLimit = {
  readonly name?: string
  readonly limit: number
  readonly window_seconds: number
  readonly burst?: number
}

/** A complete rule: GET /rate-limit/rules. */
export type Rule = PlainRule & {
  readonly name?: string
  readonly version?: number
  readonly endpoint_pattern: string
  readonly method?: string | readonly string[]
  readonly scope: string | readonly string[]
  readonly algorithm: AlgorithmName
  readonly mode: 'enforce' | 'shadow'
  readonly enabled: boolean
  readonly expires_at?: string
  readonly limit?: number | 'unlimited'
  readonly window_seconds?: number
  readonly burst?: number
  readonly limits?: readonly PlainLimit[]
  readonly by_plan?: Readonly<Record<string, readonly PlainLimit[]>>
}

export type RuleList = {
  readonly version: number
  readonly rules: readonly Rule[]
  /** `after` for the next page. */
  readonly next?: string
}

export function limitsOf(rule: Rule): readonly PlainLimit[] {
  if (rule.limits !== undefined) return rule.limits
  const { limit, window_seconds: seconds, burst } = rule
  if (typeof limit !== 'number' || seconds === undefined) return []
  return [{ limit, window_seconds: seconds, ...(burst !== undefined && { burst }) }]
}

/** A replay of fewer windows says little: a client that is far above a limit may have begun with a full bucket. */
const WINDOWS_MIN = 20

/** Whether requests of the last `seconds` are enough to tell what a rule refuses. */
export function isTelling(rule: Rule, seconds: number): boolean {
  return seconds >= WINDOWS_MIN * longestWindow(rule)
}

/** Refusals in a replay of the last `seconds`. Errs low: a short replay says "at least", and never "none". */
export function refusalText(rule: Rule, seconds: number, refused: number): string {
  const replayed = `the last ${span(seconds)}`
  if (isTelling(rule, seconds)) return `Alone, it would have refused ${fullCount(refused)} in ${replayed}.`
  const short = `less than ${WINDOWS_MIN} windows of ${span(longestWindow(rule))}`
  if (refused > 0)
    return `Alone, it would have refused at least ${fullCount(refused)}: they cover ${replayed}, ${short}.`
  return `What it would have refused cannot be told: they cover ${replayed}, ${short}.`
}

function longestWindow(rule: Rule): number {
  const limits = [...limitsOf(rule), ...Object.values(rule.by_plan ?? {}).flat()]
  return Math.max(0, ...limits.map(({ window_seconds: seconds }) => seconds))
}

/** `100/min (burst 200), 5,000/d`, as in the tables of the CLI. */
export function limitText(rule: Rule): string {
  const texts = limitsOf(rule).map(({ limit, window_seconds: seconds, burst }) => {
    const units = fullCount(limit)
    const window = hasPermits(rule) ? `${units} at once` : `${units}/${windowText(seconds)}`
    return burst === undefined || burst === limit ? window : `${window} (burst ${fullCount(burst)})`
  })
  return texts.length === 0 ? 'unlimited' : texts.join(', ')
}

function windowText(seconds: number): string {
  const units = { d: 86_400, h: 3600, min: 60 }
  for (const [unit, length] of Object.entries(units)) {
    if (seconds % length === 0) return seconds === length ? unit : `${seconds / length}${unit}`
  }
  return seconds === 1 ? 's' : `${seconds}s`
}

/** `POST /login` */
export function endpointText({ method = [], endpoint_pattern: pattern }: Rule): string {
  const methods = [method].flat().join(',')
  return methods === '' ? pattern : `${methods} ${pattern}`
}

/** Also of a rule without its defaults. */
export function scopeText({ scope = 'global' }: Partial<Rule>): string {
  return typeof scope === 'string' ? scope : scope.length === 0 ? 'global' : scope.join(' + ')
}

export type PlainStep = {
  readonly shadow?: string | true
  readonly canary?: string
  readonly guard?: string
  readonly for?: string
  readonly max?: string
}

export type StateName = 'draft' | 'approved' | 'rolling_out' | 'done' | 'rejected' | 'cancelled' | 'rolled_back'

export type RuleFigures = {
  readonly rule_id: string
  readonly pairs: number
  readonly newly_denied: number
  /** Newly denied requests that newly allowed ones of the same key make up for. */
  readonly offset: number
  readonly newly_allowed: number
  readonly both_denied: number
  /** Share of the step, in per cent. */
  readonly newly_denied_percent: number | null
  /** Number of the last windows that reach the threshold. */
  readonly windows_above: number
  readonly keys: number
}

export type Proposal = {
  readonly proposal_id: string
  readonly kind: 'change' | 'edit'
  readonly state: StateName
  readonly sentence: string
  readonly author: string
  readonly author_name: string | null
  readonly reason: string | null
  readonly base_version: number
  readonly version: number | null
  readonly changes: readonly {
    readonly op: 'create' | 'update' | 'delete'
    readonly rule_id: string
    readonly before: PlainRule | null
    readonly after: PlainRule | null
  }[]
  readonly steps: readonly PlainStep[]
  readonly step: { readonly index: number; readonly since: string | null; readonly paused: string | null } | null
  readonly guard: 'off' | { readonly newly_denied?: { readonly points?: number } }
  readonly verdict: {
    readonly outcome: 'pass' | 'fail' | 'hold' | 'error'
    readonly reason: string
    readonly rules: readonly RuleFigures[]
    readonly at: string
  } | null
  readonly created_at: string
  readonly updated_at: string
  readonly started_at: string | null
  readonly ended_at: string | null
  readonly approvals?: {
    readonly required: number
    readonly given: readonly { readonly token_id: string; readonly name: string | null; readonly at: string }[]
  }
  readonly conflicts?: readonly { readonly rule_id?: string; readonly field?: string }[]
}

export type ProposalList = { readonly proposals: readonly Proposal[]; readonly approvals_required: number }

const STATE_TEXT: Readonly<Record<StateName, string>> = {
  draft: 'waits for approval',
  approved: 'approved',
  rolling_out: 'rolling out',
  done: 'done',
  rejected: 'rejected',
  cancelled: 'cancelled',
  rolled_back: 'rolled back',
}

export function stateText({ kind, state, step }: Proposal): string {
  if (step?.paused != null) return 'paused'
  return kind === 'edit' && state === 'rolling_out' ? 'guarded' : STATE_TEXT[state]
}

export function stateHealth(state: StateName): 'good' | 'warning' | 'bad' | 'off' {
  if (state === 'done') return 'good'
  if (state === 'rolled_back' || state === 'rejected') return 'bad'
  return state === 'cancelled' ? 'off' : 'warning'
}

export function isOpen({ state }: Proposal): boolean {
  return state === 'draft' || state === 'approved' || state === 'rolling_out'
}

export function stepName({ shadow, canary, guard }: PlainStep): string {
  if (canary !== undefined) return `canary ${canary}`
  return guard === undefined && shadow !== undefined ? 'shadow' : 'guard'
}

/** Time of a step; undefined: it ends when someone promotes it. */
export function stepTime(step: PlainStep): string | undefined {
  const { shadow, guard } = step
  return step.for ?? guard ?? (typeof shadow === 'string' ? shadow : undefined)
}

/** Effect of a step, as a sentence. */
export function stepSentence(step: PlainStep): string {
  const time = stepTime(step)
  const until = time === undefined ? 'until someone promotes it' : `for ${time}`
  if (step.canary !== undefined) return `The new version decides for ${step.canary} of the keys, ${until}.`
  if (step.guard !== undefined) return `The change applies to all keys and is watched ${until}.`
  return `Both versions are evaluated, the old one decides, ${until}.`
}
