// A proposal: its change, approvals, steps and guard, with the actions that its state and the role allow.

import { useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { nowMs } from '../../clock.ts'
import { Confirm } from '../../components/dialog.tsx'
import { Diff } from '../../components/diff.tsx'
import { Failure, Notice } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { Time } from '../../components/time.tsx'
import { grouped, wholeSpan } from '../../format.ts'
import { useApi } from '../../resource.ts'
import { ruleText } from '../../rule-text.ts'
import { can, type Role } from '../../session.ts'
import { GuardFigures } from './guard-figures.tsx'
import { isOpen, type Proposal, stateHealth, stateText, stepName, stepSentence, stepTime } from './rule.ts'

const REFRESH_MS = 2000

type Props = { readonly proposalId: string; readonly onMoved: () => void }

export function ProposalPanel({ proposalId, onMoved }: Props) {
  const path = `/rate-limit/proposals/${encodeURIComponent(proposalId)}`
  const { data, error, reload } = useApi<Proposal>(path, {}, { refreshMs: REFRESH_MS })
  const moved = () => {
    reload()
    onMoved()
  }
  if (data === undefined) {
    return (
      <Panel title="Proposal">
        {error === undefined ? <span class="skeleton" /> : <Failure error={error} retry={reload} />}
      </Panel>
    )
  }
  const { state, author, author_name: name, reason, created_at: at, conflicts = [] } = data
  return (
    <Panel title="Proposal" note={<Status health={stateHealth(state)}>{stateText(data)}</Status>}>
      <div class="stack">
        <p>
          {data.kind === 'edit' ? 'Direct edit under guard' : 'Proposed'} by {name ?? author}, <Time at={at} as="ago" />
          {reason !== null && <>: {reason}</>}
        </p>
        <p role="status" class="proposal-sentence">
          {grouped(data.sentence)}
        </p>
        {conflicts.length > 0 && (
          <Notice tone="warning">
            The rule changed since this was proposed: {conflicts.map(({ field }) => field).join(', ')}.
          </Notice>
        )}
        <Approvals proposal={data} />
        <Steps proposal={data} />
        <GuardFigures proposal={data} />
        {data.changes.map(({ rule_id: id, op, before, after }) => (
          <section key={id}>
            <h3>
              {op} <span class="mono">{id}</span>
            </h3>
            <Diff before={ruleText(before)} after={ruleText(after)} />
          </section>
        ))}
        <Actions proposal={data} path={path} onMoved={moved} />
      </div>
    </Panel>
  )
}

function Approvals({ proposal: { approvals, state } }: { readonly proposal: Proposal }) {
  if (approvals === undefined || approvals.required === 0) return null
  const { required, given } = approvals
  return (
    <p>
      {given.length} of {required} approvals
      {given.length > 0 && <>: {given.map(({ name, token_id: id }) => name ?? id).join(', ')}</>}
      {state === 'draft' && <span class="muted"> – never by its author, or by a related token</span>}
    </p>
  )
}

/** Steps in order; the current one shows its time. */
function Steps({ proposal: { kind, steps, step, state } }: { readonly proposal: Proposal }) {
  const current = state === 'done' ? steps.length : (step?.index ?? -1)
  const since = step?.since == null ? undefined : (nowMs() - Date.parse(step.since)) / 1000
  return (
    <ol class="steps" aria-label="Steps of the rollout">
      {steps.map((one, index) => {
        const phase = index < current ? 'past' : index === current ? 'current' : 'next'
        const time = stepTime(one)
        return (
          <li key={index} class={`step step-${phase}`} aria-current={phase === 'current' ? 'step' : undefined}>
            <strong>{stepName(one)}</strong>
            <span class="muted">
              {phase === 'current' && since !== undefined && `${wholeSpan(Math.max(0, since))}, `}
              {time === undefined ? 'until promoted' : `${phase === 'current' ? 'of ' : ''}${time}`}
              {phase === 'current' && step?.paused != null && ', paused'}
            </span>
          </li>
        )
      })}
      {kind === 'change' && (
        <li class={state === 'done' ? 'step step-past' : 'step step-next'}>
          <strong>all keys</strong>
          <span class="muted">{state === 'done' ? 'done' : 'then'}</span>
        </li>
      )}
    </ol>
  )
}

type Action = {
  readonly name: 'approve' | 'reject' | 'start' | 'promote' | 'pause' | 'abort'
  readonly label: string
  readonly role: Role
  readonly danger?: boolean
  readonly sentence: string
}

/** Actions of a direct edit under guard, which applies to all keys already. */
const GUARDED: readonly Action[] = [
  {
    ...{ name: 'promote', label: 'End the guard', role: 'editor' },
    sentence: 'The change stays. The guard no longer watches it, and cannot roll it back.',
  },
  {
    ...{ name: 'abort', label: 'Revert', role: 'editor', danger: true },
    sentence: 'The previous rule applies to all keys at once.',
  },
]

/** Actions that the state allows, each with what will happen. */
function actionsOf(proposal: Proposal): readonly Action[] {
  const { state, step, steps, kind } = proposal
  const [first] = steps
  const reject: Action = {
    ...{ name: 'reject', label: 'Reject', role: 'approver', danger: true },
    sentence: 'The proposal ends. The rules stay as they are. It cannot be started again.',
  }
  const cancel: Action = {
    ...{ name: 'abort', label: 'Cancel', role: 'editor' },
    sentence: 'The proposal ends before it started. The rules stay as they are.',
  }
  if (state === 'draft') {
    const sentence = 'Your approval counts for this proposal. The last approval starts its rollout.'
    return [{ name: 'approve', label: 'Approve', role: 'approver', sentence }, reject, cancel]
  }
  if (state === 'approved') {
    const sentence = `The rollout starts with its first step. ${first === undefined ? '' : stepSentence(first)}`
    return [{ name: 'start', label: 'Start', role: 'editor', sentence }, reject, cancel]
  }
  if (state === 'rolled_back' || state === 'cancelled') {
    const sentence = 'The proposal is tried again from its first step, with approvals of its own if any are required.'
    return kind === 'edit' ? [] : [{ name: 'start', label: 'Retry', role: 'editor', sentence }]
  }
  if (state !== 'rolling_out') return []
  if (kind === 'edit') return GUARDED
  const next = steps[(step?.index ?? 0) + 1]
  const then = next === undefined ? 'The change applies to all keys, as a new version.' : stepSentence(next)
  const promote: Action = {
    ...{ name: 'promote', label: 'Promote', role: 'editor' },
    sentence: `The current step ends now. ${then}`,
  }
  const abort: Action = {
    ...{ name: 'abort', label: 'Abort', role: 'editor', danger: true },
    sentence: 'The change is rolled back at once: the previous rule decides for all keys.',
  }
  if (step?.paused != null) {
    const sentence = 'The rollout goes on with its current step.'
    return [{ name: 'start', label: 'Resume', role: 'editor', sentence }, promote, abort]
  }
  const sentence = 'The rollout stays at its current step until someone resumes or promotes it. The guard runs on.'
  return [promote, { name: 'pause', label: 'Pause', role: 'editor', sentence }, abort]
}

type ActionsProps = { readonly proposal: Proposal; readonly path: string; readonly onMoved: () => void }

function Actions({ proposal, path, onMoved }: ActionsProps) {
  const [chosen, setChosen] = useState<Action>()
  const actions = actionsOf(proposal).filter(({ role }) => can(role))
  if (actions.length === 0) {
    return isOpen(proposal) ? <p class="muted">Your role cannot move this proposal.</p> : null
  }
  const act = async ({ name }: Action, reason: string) => {
    await send(`${path}/${name}`, { method: 'POST', body: reason === '' ? {} : { reason } })
    onMoved()
  }
  return (
    <div class="row-actions">
      {actions.map((action, index) => (
        <button key={action.label} type="button" class={index === 0 ? 'primary' : ''} onClick={() => setChosen(action)}>
          {action.label}
        </button>
      ))}
      {chosen !== undefined && (
        <Confirm
          title={proposal.kind === 'edit' ? chosen.label : `${chosen.label} this proposal`}
          action={chosen.label}
          danger={chosen.danger === true}
          {...(chosen.name !== 'approve' && chosen.name !== 'start' && { reason: 'optional' as const })}
          onConfirm={(reason) => act(chosen, reason)}
          onClose={() => setChosen(undefined)}
        >
          <p>{chosen.sentence}</p>
        </Confirm>
      )}
    </div>
  )
}
