// Body of a proposal: changes, steps and guard, parsed with every mistake named; and proposals as the API shows them.

import { createHash } from 'node:crypto'
import type { FieldError } from 'sluice'
import type { Queries } from '../../db/database.ts'
import { invalidRequest, ProblemError, problem } from '../../problems/problem.ts'
import type { Undone } from '../../rollouts/edit-history.ts'
import { parseGuard, plainGuard } from '../../rollouts/guard-settings.ts'
import type { Verdict } from '../../rollouts/judge.ts'
import { pairShareOf } from '../../rollouts/pair-share.ts'
import {
  CHANGES_MAX,
  type Judged,
  type Operation,
  type Proposal,
  type ProposedChange,
} from '../../rollouts/proposal.ts'
import type { ProposalRequest, ShownProposal } from '../../rollouts/proposal-store.ts'
import type { Conflict } from '../../rollouts/rebase.ts'
import { type Kind, STATE_NAMES, type StateName } from '../../rollouts/state.ts'
import { defaultSteps, type PlainStep, parseSteps, plainStep, type Step } from '../../rollouts/step.ts'
import { canaryProblems } from '../../rollouts/tightens.ts'
import type { PlainRule } from '../../rules/changes.ts'
import { compactRule } from '../../rules/compact-rule.ts'
import { mergePatch } from '../../rules/merge-patch.ts'
import { NESTING_MAX } from '../../rules/nesting.ts'
import { rulesIn } from '../../rules/rule-store.ts'
import { type RulesDeps, validRule } from './rule-writes.ts'
import { REASON, type Schema } from './schemas.ts'

export type ProposalBody = {
  readonly changes: readonly { readonly op: Operation; readonly rule: Readonly<Record<string, unknown>> }[]
  readonly reason: string
  readonly steps?: unknown
  readonly guard?: unknown
  readonly base_version?: number
}

const OPERATIONS: readonly Operation[] = ['create', 'update', 'delete']
const RULE_ID = /^[a-z0-9_.-]{1,64}$/
const RULE_ID_FIX = 'give the id of a rule'
const EXAMPLE_STEPS = [{ shadow: '10m' }, { canary: '1%', for: '10m' }, { canary: '10%', for: '10m' }]

export const PROPOSAL_BODY: Schema = {
  type: 'object',
  additionalProperties: false,
  required: ['changes', 'reason'],
  properties: {
    changes: {
      type: 'array',
      minItems: 1,
      maxItems: CHANGES_MAX,
      description: 'Changes of rules, at most one per rule.',
      items: {
        type: 'object',
        additionalProperties: false,
        required: ['op', 'rule'],
        properties: {
          op: { type: 'string', enum: OPERATIONS, 'x-fix': 'use create, update or delete' },
          rule: {
            type: 'object',
            description: 'create: the rule. update: a merge patch with rule_id. delete: rule_id alone.',
            'x-fix': 'give a rule as an object with rule_id',
          },
        },
        'x-fix': 'give an object with op and rule',
      },
      'x-fix': `give a list of 1 to ${CHANGES_MAX} changes`,
    },
    reason: REASON,
    steps: {
      type: 'array',
      description: 'Steps of the rollout. Default: shadow 10m, then canary 1%, 10% and 50% for 10m each.',
      'x-fix': 'give a list of steps',
    },
    guard: {
      type: ['object', 'string'],
      description: 'Thresholds of the guard, or "off". Omitted ones have their defaults.',
      'x-fix': 'give "off", or an object with thresholds',
    },
    base_version: {
      type: 'integer',
      minimum: 0,
      description: 'Refuse the proposal if another version of the rules is active.',
      'x-fix': 'give the number of a version',
    },
  },
  'x-fix': 'send a JSON object with changes and reason',
  examples: [
    { changes: [{ op: 'update', rule: { rule_id: 'demo', limit: 10 } }], reason: 'double it', steps: EXAMPLE_STEPS },
  ],
}

/** Validates all but the changes, which depend on the current rules. */
export function proposalRequest(deps: RulesDeps, body: ProposalBody, key: string | undefined): ProposalRequest {
  const steps = body.steps === undefined ? undefined : parseSteps(body.steps)
  const guard = parseGuard(body.guard)
  const mistakes: FieldError[] = [...mistakesIn(steps), ...mistakesIn(guard), ...duplicates(body)]
  if (mistakes.length > 0) throw new ProblemError(invalidRequest(mistakes))
  const given = steps as readonly Step[] | undefined // no mistakes
  return {
    reason: body.reason,
    guard: guard as ProposalRequest['guard'],
    ifVersion: body.base_version,
    print: { key, hash: hashOf(body) },
    plan: async (queries) => {
      const changes = await changesOf(deps, body, queries)
      if (given?.some(({ kind }) => kind === 'canary')) requireCanary(changes)
      return { changes, steps: given ?? defaultSteps(canaryProblems(changes).length === 0) }
    },
  }
}

/** Recognises a repeated request. */
function hashOf(body: ProposalBody): string {
  try {
    return createHash('sha256').update(JSON.stringify(body)).digest('hex')
  } catch (error) {
    if (!(error instanceof RangeError)) throw error // the stack is full
    throw new ProblemError(
      invalidRequest([
        { field: 'changes', value: 'a deeply nested value', fix: `nest at most ${NESTING_MAX} levels deep` },
      ]),
    )
  }
}

function mistakesIn(parsed: unknown): readonly FieldError[] {
  const isWrong = typeof parsed === 'object' && parsed !== null && 'mistakes' in parsed
  return isWrong ? (parsed.mistakes as readonly FieldError[]) : []
}

function duplicates({ changes }: ProposalBody): FieldError[] {
  const ids = changes.map(({ rule }) => rule.rule_id)
  return ids.flatMap((id, index) => {
    const field = `changes[${index}].rule.rule_id`
    if (typeof id !== 'string' || !RULE_ID.test(id)) return [{ field, value: id, fix: RULE_ID_FIX }]
    return ids.indexOf(id) === index ? [] : [{ field, value: id, fix: 'change each rule once' }]
  })
}

async function changesOf(deps: RulesDeps, body: ProposalBody, queries: Queries): Promise<ProposedChange[]> {
  const ids = body.changes.map(({ rule }) => String(rule.rule_id))
  const present = new Map((await rulesIn(queries, ids)).map((rule) => [rule.rule_id, rule]))
  const changes: ProposedChange[] = []
  for (const [index, { op, rule }] of body.changes.entries()) {
    const ruleId = String(rule.rule_id)
    const base = present.get(ruleId) ?? null
    if (op === 'create' && base !== null)
      throw new ProblemError(problem('RULE_EXISTS', `Rule ${ruleId} already exists: change it with "op": "update".`))
    if (op !== 'create' && base === null) throw new ProblemError(problem('RULE_UNKNOWN', `There is no rule ${ruleId}.`))
    if (op === 'delete') changes.push({ op, ruleId, base, rule: null })
    else changes.push({ op, ruleId, base, rule: await ruleOf(deps, base, rule, `changes[${index}].rule`) })
  }
  return changes
}

/** Mistakes name the change that they are in. */
async function ruleOf(deps: RulesDeps, base: PlainRule | null, rule: object, at: string): Promise<PlainRule> {
  try {
    return compactRule(await validRule(deps, base === null ? rule : mergePatch(base, rule)))
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error
    const { code, detail, errors = [] } = error.problem
    const located = errors.map((fieldError) => ({ ...fieldError, field: `${at}.${fieldError.field}` }))
    throw new ProblemError(problem(code, detail, located))
  }
}

function requireCanary(changes: readonly ProposedChange[]): void {
  const found = canaryProblems(changes).map(({ ruleId, why }) => {
    return { field: 'steps', value: ruleId, fix: `remove the canary steps: rule ${ruleId} has ${why}` }
  })
  if (found.length > 0) throw new ProblemError(invalidRequest(found))
}

const nullable = { type: ['string', 'null'] }
const anything = { additionalProperties: true }

export const PROPOSAL: Schema = {
  type: 'object',
  required: ['proposal_id', 'state', 'sentence'],
  properties: {
    proposal_id: { type: 'string' },
    kind: { type: 'string', enum: ['change', 'edit'], description: 'edit: a direct edit under guard.' },
    state: { type: 'string', enum: STATE_NAMES },
    sentence: { type: 'string', description: 'State and reason in one sentence.' },
    waits: { ...nullable, description: 'Why the guard neither ends the step nor rolls back, while it does neither.' },
    author: { type: 'string', description: 'Id of a token, or admin-token.' },
    author_name: nullable,
    reason: nullable,
    base_version: { type: 'integer', description: 'Version of the rules that the changes were made against.' },
    version: { type: ['integer', 'null'], description: 'Version that the change, or its rollback, became.' },
    attempt: { type: 'integer' },
    changes: { type: 'array', items: { type: 'object', ...anything } },
    steps: { type: 'array', items: { type: 'object', ...anything } },
    step: { type: ['object', 'null'], ...anything, description: 'The current step: index, since, paused.' },
    guard: { description: 'Thresholds of the guard, or "off".' },
    verdict: { type: ['object', 'null'], ...anything, description: 'The last verdict of the guard, with its figures.' },
    pair_share: {
      type: 'number',
      description: 'Share of keys that both versions decide, of the rule with the most. Per rule: in changes.',
    },
    approvals: { type: 'object', ...anything },
    conflicts: {
      type: 'array',
      items: { type: 'object', ...anything },
      description: 'Fields that changed since the base version, before the start.',
    },
    now: { type: 'string' },
    created_at: { type: 'string' },
    updated_at: { type: 'string' },
    started_at: nullable,
    ended_at: nullable,
  },
}

/** Proposal with the field names of the API. */
export type PlainProposal = {
  readonly proposal_id: string
  readonly kind: Kind
  readonly state: StateName
  readonly sentence: string
  /** Reason of the guard to neither end the step nor roll back; null if it does not wait. */
  readonly waits: string | null
  readonly author: string
  readonly author_name: string | null
  readonly reason: string | null
  readonly base_version: number
  readonly version: number | null
  readonly attempt: number
  readonly changes: readonly {
    readonly op: Operation
    readonly rule_id: string
    readonly pair_share: number
    readonly before: PlainRule | null
    readonly after: PlainRule | null
    /** Present for a direct edit under guard. */
    readonly judged?: Judged
    /** Present for a direct edit that was rolled back. */
    readonly reverted?: Undone['reverted']
    readonly not_reverted?: Undone['kept']
  }[]
  readonly steps: readonly PlainStep[]
  readonly step: PlainProgress | null
  readonly guard: unknown
  readonly verdict: PlainVerdict | null
  readonly pair_share: number
  readonly created_at: string
  readonly updated_at: string
  readonly started_at: string | null
  readonly ended_at: string | null
}

type PlainProgress = {
  readonly index: number
  readonly since: string | null
  readonly paused: string | null
  readonly paused_since: string | null
}

type PlainVerdict = Verdict & { readonly at: string }

/** A proposal with the fields that the list omits. */
export type PlainShownProposal = PlainProposal & {
  readonly approvals: {
    readonly required: number
    readonly given: readonly { readonly token_id: string; readonly name: string | null; readonly at: string }[]
  }
  readonly conflicts: readonly Conflict[]
  readonly now: string
}

export function plainProposal(proposal: Proposal): PlainProposal {
  const { state, stepAt, pausedAt, verdict } = proposal
  const step = state.name === 'rolling_out' && {
    index: state.step,
    since: stepAt?.toISOString() ?? null,
    paused: state.paused ?? null,
    paused_since: pausedAt?.toISOString() ?? null,
  }
  return {
    proposal_id: proposal.id,
    kind: proposal.kind,
    state: state.name,
    sentence: proposal.sentence,
    waits: state.name === 'rolling_out' && verdict?.outcome === 'hold' ? verdict.reason : null,
    author: proposal.author,
    author_name: proposal.authorName,
    reason: proposal.reason,
    base_version: proposal.baseVersion,
    version: proposal.doneVersion,
    attempt: proposal.attempt,
    changes: proposal.changes.map((change) => {
      const { op, ruleId, base, rule, judged, undone } = change
      return {
        ...{ op, rule_id: ruleId, pair_share: pairShareOf(proposal, change), before: base, after: rule },
        ...(judged !== undefined && state.name === 'rolling_out' && { judged }),
        ...(undone !== undefined && { reverted: undone.reverted, not_reverted: undone.kept }),
      }
    }),
    steps: proposal.steps.map(plainStep),
    step: step || null,
    guard: plainGuard(proposal.guard),
    verdict: verdict && verdictOf(verdict),
    pair_share: Math.max(0, ...proposal.changes.map((change) => pairShareOf(proposal, change))),
    created_at: proposal.createdAt.toISOString(),
    updated_at: proposal.updatedAt.toISOString(),
    started_at: proposal.startedAt?.toISOString() ?? null,
    ended_at: proposal.endedAt?.toISOString() ?? null,
  }
}

function verdictOf({ outcome, reason, metric, action, rules, at }: NonNullable<Proposal['verdict']>): PlainVerdict {
  return { outcome, reason, metric, action, rules, at }
}

export function shownProposal({ proposal, approvals, conflicts, now }: ShownProposal): PlainShownProposal {
  const given = approvals.given.map(({ tokenId, name, at }) => ({ token_id: tokenId, name, at: at.toISOString() }))
  return {
    ...plainProposal(proposal),
    approvals: { required: approvals.required, given },
    conflicts,
    now: now.toISOString(),
  }
}
