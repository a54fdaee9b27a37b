// Proposes a change: reason, steps and guard, with a list of what will happen.

import { useState } from 'preact/hooks'
import { messageOf, send } from '../../api.ts'
import { Dialog, Missing } from '../../components/dialog.tsx'
import { Diff } from '../../components/diff.tsx'
import { SelectField, TextField } from '../../components/field.tsx'
import { Failure } from '../../components/notice.tsx'
import { type PlainRule, patchBetween, ruleText } from '../../rule-text.ts'
import { type PlainStep, type Rule, scopeText, stepSentence } from './rule.ts'

/** Steps to choose from. Undefined: the service decides, depending on the rule. */
const PLANS: Readonly<Record<string, { readonly label: string; readonly steps: readonly PlainStep[] | undefined }>> = {
  default: { label: 'Default: shadow, then canary 1 %, 10 % and 50 %, 10 minutes each', steps: undefined },
  shadow: { label: 'Shadow until someone promotes it', steps: [{ shadow: true }] },
  careful: {
    label: 'Careful: shadow 1 h, then canary 1 %, 5 %, 25 %, 50 % for 1 h each',
    steps: [{ shadow: '1h' }, ...['1%', '5%', '25%', '50%'].map((canary) => ({ canary, for: '1h' }))],
  },
  quick: {
    label: 'Quick: shadow 1 minute, then canary 10 % for 5 minutes',
    steps: [{ shadow: '1m' }, { canary: '10%', for: '5m' }],
  },
  own: { label: 'Other steps', steps: undefined },
}
const OWN_EXAMPLE = '[{"shadow": "10m"}, {"canary": "10%", "for": "30m"}]'

type Props = {
  readonly after: PlainRule
  readonly before: PlainRule | undefined
  readonly baseVersion: number
  readonly plan?: string
  readonly onClose: () => void
  readonly onDone: (proposalId: string) => void
}

export function ProposeDialog({ after, before, baseVersion, plan: firstPlan = 'default', onClose, onDone }: Props) {
  const [reason, setReason] = useState('')
  const [plan, setPlan] = useState(firstPlan)
  const [own, setOwn] = useState(OWN_EXAMPLE)
  const [error, setError] = useState<string>()
  const [isBusy, setBusy] = useState(false)
  const steps = plan === 'own' ? parsedSteps(own) : PLANS[plan]?.steps
  const submit = async (event: Event) => {
    event.preventDefault()
    setBusy(true)
    try {
      const change =
        before === undefined ? { op: 'create', rule: after } : { op: 'update', rule: patchBetween(before, after) }
      const body = { changes: [change], reason: reason.trim(), base_version: baseVersion, ...(steps && { steps }) }
      const created = await send<{ proposal_id: string }>('/rate-limit/proposals', { method: 'POST', body })
      onDone(created.proposal_id)
    } catch (failure) {
      setError(messageOf(failure))
      setBusy(false)
    }
  }
  const isShared = scopeText(after as Partial<Rule>) === 'global'
  const isReady = reason.trim() !== '' && steps !== null
  return (
    <Dialog
      title={before === undefined ? `Propose ${after.rule_id}` : `Propose a change of ${after.rule_id}`}
      onClose={onClose}
    >
      <form onSubmit={submit}>
        <Diff before={ruleText(before)} after={ruleText(after)} />
        <TextField
          label="Reason"
          hint="Shown to approvers, and recorded in the audit log."
          value={reason}
          onValue={setReason}
        />
        <StepsFields plan={plan} setPlan={setPlan} own={own} setOwn={setOwn} isInvalid={steps === null} />
        <WhatHappens steps={steps ?? undefined} isShared={isShared} />
        <Failure error={error} />
        <footer>
          {!isReady && <Missing>{steps === null ? 'The steps are not valid.' : 'A reason is missing.'}</Missing>}
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={!isReady || isBusy}>
            Propose
          </button>
        </footer>
      </form>
    </Dialog>
  )
}

type StepsProps = {
  readonly plan: string
  readonly setPlan: (plan: string) => void
  readonly own: string
  readonly setOwn: (text: string) => void
  readonly isInvalid: boolean
}

function StepsFields({ plan, setPlan, own, setOwn, isInvalid }: StepsProps) {
  const labels = Object.fromEntries(Object.entries(PLANS).map(([name, { label }]) => [name, label]))
  return (
    <>
      <SelectField label="Steps" value={plan} onValue={setPlan} options={labels} />
      {plan === 'own' && (
        <TextField
          label="Steps as JSON"
          value={own}
          onValue={setOwn}
          error={isInvalid ? 'give a JSON list of steps' : undefined}
        />
      )}
    </>
  )
}

type WhatHappensProps = { readonly steps: readonly PlainStep[] | undefined; readonly isShared: boolean }

/** Null: not a list. The service validates the steps themselves. */
function parsedSteps(text: string): readonly PlainStep[] | null {
  try {
    const value: unknown = JSON.parse(text)
    return Array.isArray(value) ? (value as PlainStep[]) : null
  } catch {
    return null
  }
}

function WhatHappens({ steps, isShared }: WhatHappensProps) {
  return (
    <div class="what-happens">
      <p>Nothing changes until the proposal has its approvals and is started. Then:</p>
      <ol>
        {steps === undefined && (
          <li>Both versions are evaluated, the old one decides, for {isShared ? 30 : 10} minutes.</li>
        )}
        {steps === undefined && !isShared && (
          <li>The new version decides for 1 %, 10 % and 50 % of the keys, for 10 minutes each.</li>
        )}
        {steps?.map((step, index) => (
          <li key={index}>{stepSentence(step)}</li>
        ))}
        <li>The change applies to all keys, as a new version.</li>
      </ol>
      <p>The guard rolls it back if too many requests are newly denied.</p>
    </div>
  )
}
