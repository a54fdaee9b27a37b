// State machine of a proposal: a union and one transition function. Every change of state goes through it, whichever
// node, person or guard causes it, so an illegal transition cannot be written.

export type State =
  /** Waits for approvals. Its rules are not locked; nothing is evaluated. */
  | { readonly name: 'draft' }
  /** Has its approvals, or needs none. Waits for `start`. */
  | { readonly name: 'approved' }
  /** Holds the rollout of each of its rules. `paused`: stays at its step until a person acts; the guard runs on. */
  | { readonly name: 'rolling_out'; readonly step: number; readonly paused: string | undefined }
  /** Applies to all keys. Final. */
  | { readonly name: 'done' }
  | { readonly name: 'rejected' }
  /** Ended before it started. Can be tried again. */
  | { readonly name: 'cancelled' }
  /** Ended after it started; the previous rules apply. Can be tried again. */
  | { readonly name: 'rolled_back' }

export type StateName = State['name']

export const STATE_NAMES: readonly StateName[] = [
  'draft',
  'approved',
  'rolling_out',
  'done',
  'rejected',
  'cancelled',
  'rolled_back',
]

export type Event =
  /** A person approved. `enough`: all required approvals are there. */
  | { readonly type: 'approve'; readonly enough: boolean }
  | { readonly type: 'reject' }
  /** Starts, resumes or retries. `enough` as above; a retry needs approvals of its own if any are required. */
  | { readonly type: 'start'; readonly enough: boolean; readonly required: number }
  /** The time of the step is over and the guard passed. */
  | { readonly type: 'advance' }
  /** A person ends the step. */
  | { readonly type: 'promote' }
  | { readonly type: 'pause'; readonly why: string }
  | { readonly type: 'abort' }
  /** A metric of the guard failed. */
  | { readonly type: 'revert' }
  /** A later direct edit or rollback replaced the change. */
  | { readonly type: 'supersede' }

export type EventName = Event['type']

/** `change` is staged: its rules are not in the rule set yet. `edit` is applied and under guard. */
export type Kind = 'change' | 'edit'

export type Facts = { readonly kind: Kind; readonly steps: number }

export type Transition = { readonly state: State } | { readonly refused: string }

const FIRST_STEP: State = { name: 'rolling_out', step: 0, paused: undefined }

export function transition(state: State, event: Event, facts: Facts): Transition {
  if (facts.kind === 'edit' && EDIT_REFUSES.has(event.type))
    return { refused: 'a direct edit under guard can only be promoted or aborted' }
  switch (event.type) {
    case 'approve':
      return approved(state, event.enough)
    case 'reject':
      if (state.name === 'draft' || state.name === 'approved') return { state: { name: 'rejected' } }
      return refuse('rejected', state)
    case 'start':
      return started(state, event)
    case 'advance':
      if (state.name === 'rolling_out' && state.paused !== undefined) return { refused: 'the rollout is paused' }
      return next(state, facts)
    case 'promote':
      return next(state, facts)
    case 'pause':
      if (state.name !== 'rolling_out') return refuse('paused', state)
      return { state: { ...state, paused: state.paused ?? event.why } }
    case 'abort':
      if (state.name === 'draft' || state.name === 'approved') return { state: { name: 'cancelled' } }
      return state.name === 'rolling_out' ? { state: { name: 'rolled_back' } } : refuse('aborted', state)
    case 'revert':
      return state.name === 'rolling_out' ? { state: { name: 'rolled_back' } } : refuse('rolled back', state)
    case 'supersede':
      if (state.name !== 'rolling_out') return refuse('superseded', state)
      return { state: { name: facts.kind === 'edit' ? 'done' : 'rolled_back' } }
  }
}

const EDIT_REFUSES: ReadonlySet<EventName> = new Set(['approve', 'reject', 'start', 'pause'])

function approved(state: State, enough: boolean): Transition {
  if (state.name === 'draft') return { state: enough ? { name: 'approved' } : state }
  return state.name === 'approved' || state.name === 'rolling_out' ? { state } : refuse('approved', state)
}

function started(state: State, { enough, required }: { enough: boolean; required: number }): Transition {
  switch (state.name) {
    case 'draft':
      return { refused: `it waits for approval: ${required} required` }
    case 'approved':
      return { state: enough ? FIRST_STEP : { name: 'draft' } } // an approver was revoked since
    case 'rolling_out':
      return state.paused === undefined ? refuse('started', state) : { state: { ...state, paused: undefined } }
    case 'rolled_back':
    case 'cancelled':
      return { state: required > 0 ? { name: 'draft' } : FIRST_STEP }
    default:
      return refuse('started', state)
  }
}

function next(state: State, { steps }: Facts): Transition {
  if (state.name !== 'rolling_out') return refuse('promoted', state)
  const step = state.step + 1
  return { state: step < steps ? { name: 'rolling_out', step, paused: undefined } : { name: 'done' } }
}

function refuse(verb: string, { name }: State): Transition {
  return { refused: `a proposal that is ${stateText(name)} cannot be ${verb}` }
}

/** `rolled back` */
export function stateText(name: StateName): string {
  return name.replaceAll('_', ' ')
}

/** Whether the proposal has ended. Some ended proposals can be tried again. */
export function isEnded(name: StateName): boolean {
  return name !== 'draft' && name !== 'approved' && name !== 'rolling_out'
}
