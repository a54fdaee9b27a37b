// Global factor: multiplies every limit of every rule, for a time.

import { useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { Confirm } from '../../components/dialog.tsx'
import { TextField } from '../../components/field.tsx'
import { Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { Time } from '../../components/time.tsx'
import { LifetimeField } from '../../exceptions/lifetime-field.tsx'
import { authorText } from '../../exceptions/override.ts'
import { percent } from '../../format.ts'
import type { Resource } from '../../resource.ts'
import { can } from '../../session.ts'
import type { GlobalFactor, IncidentState } from './incident.ts'

const PATH = '/rate-limit/incident/factor'

export function Factor({ incident: { data, reload } }: { readonly incident: Resource<IncidentState> }) {
  const [dialog, setDialog] = useState<'set' | 'end' | 'approve'>()
  const close = () => setDialog(undefined)
  return (
    <Panel title="Global factor">
      <div class="tool">
        <p class="tool-text">Multiplies every limit of every rule, down to 1 at least, until it ends.</p>
        <p class="tool-state" aria-live="polite">
          {data?.factor == null ? <Status health="good">None</Status> : <InForce factor={data.factor} />}
          {data?.pending_factor != null && (
            <span>
              {' '}
              <Status health="warning">× {data.pending_factor.factor} waits for approval</Status>
            </span>
          )}
        </p>
        {can('approver') && data !== undefined && (
          <div class="tool-actions">
            <button type="button" onClick={() => setDialog('set')}>
              Set factor
            </button>
            {data.pending_factor !== null && (
              <button type="button" onClick={() => setDialog('approve')}>
                Approve
              </button>
            )}
            {(data.factor !== null || data.pending_factor !== null) && (
              <button type="button" onClick={() => setDialog('end')}>
                End factor
              </button>
            )}
          </div>
        )}
      </div>
      {dialog === 'set' && <SetFactor onDone={reload} onClose={close} />}
      {dialog === 'approve' && <Approve factor={data?.pending_factor?.factor} onDone={reload} onClose={close} />}
      {dialog === 'end' && <End onDone={reload} onClose={close} />}
    </Panel>
  )
}

type DialogProps = { readonly onDone: () => void; readonly onClose: () => void }

function Approve({ factor, onDone, onClose }: DialogProps & { readonly factor: number | undefined }) {
  const approve = () => send(`${PATH}/approve`, { method: 'POST', body: {} }).then(onDone)
  return (
    <Confirm title="Approve the factor" action="Approve" onConfirm={approve} onClose={onClose}>
      <p>
        Every limit is multiplied by {factor} once it has the approvals that it needs, on every node within a second.
      </p>
    </Confirm>
  )
}

function End({ onDone, onClose }: DialogProps) {
  const end = () => send(PATH, { method: 'DELETE' }).then(onDone)
  return (
    <Confirm title="End the factor" action="End factor" onConfirm={end} onClose={onClose}>
      <p>Every limit is that of its rule or override again, on every node within a second.</p>
    </Confirm>
  )
}

function InForce({ factor }: { readonly factor: GlobalFactor }) {
  return (
    <>
      <Status health="warning">× {factor.factor}</Status> ends <Time at={factor.expires_at} as="ago" />, by{' '}
      {authorText(factor)}: {factor.reason}
    </>
  )
}

function SetFactor({ onDone, onClose }: DialogProps) {
  const [factor, setFactor] = useState('0.5')
  const [lifetime, setLifetime] = useState('15m')
  const confirm = async (reason: string) => {
    await send(PATH, { method: 'POST', body: { factor: Number(factor), expires_in: lifetime, reason } })
    onDone()
  }
  return (
    <Confirm
      title="Set the global factor"
      action="Set factor"
      danger={Number(factor) < 1}
      reason="required"
      onConfirm={confirm}
      onClose={onClose}
    >
      <TextField label="Factor" type="number" step="any" min="0" value={factor} onValue={setFactor} required />
      <LifetimeField value={lifetime} onValue={setLifetime} />
      <p>{consequence(Number(factor))}</p>
    </Confirm>
  )
}

function consequence(factor: number): string {
  if (!(factor > 0)) return 'Give a number above 0.'
  const change = factor < 1 ? 'More requests will be refused.' : 'More requests will be allowed.'
  const effect = `Every limit of every rule becomes ${percent(factor)} of what it is, at least 1, on every node.`
  return `${effect} ${change} It replaces a factor that is in force.`
}
