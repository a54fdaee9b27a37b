// Freeze: no rule changes during an incident.

import { useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { Confirm } from '../../components/dialog.tsx'
import { Failure } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { Time } from '../../components/time.tsx'
import type { Resource } from '../../resource.ts'
import { can } from '../../session.ts'
import type { IncidentState } from './incident.ts'

const FREEZE_EFFECT =
  'Writes of rules are refused on every node, with your name and reason, until somebody unfreezes them. ' +
  'Traffic is not affected.'

export function Freeze({ incident: { data, error, reload } }: { readonly incident: Resource<IncidentState> }) {
  const [isOpen, setOpen] = useState(false)
  const isFrozen = data?.frozen === true
  const confirm = async (reason: string) => {
    const path = `/rate-limit/incident/${isFrozen ? 'unfreeze' : 'freeze'}`
    await send(path, { method: 'POST', body: reason === '' ? {} : { reason } })
    reload()
  }
  return (
    <Panel title="Freeze">
      <div class="tool">
        <p class="tool-text">
          While rules are frozen they change by rollback only. Kill switch, overrides, signals and factor still work.
        </p>
        <Failure error={error} />
        <p class="tool-state" aria-live="polite">
          {data?.freeze == null ? (
            <Status health="good">Rule changes are allowed</Status>
          ) : (
            <>
              <Status health="warning">Frozen</Status> since <Time at={data.freeze.since} /> by{' '}
              {data.freeze.by_name ?? data.freeze.by}
              {data.freeze.reason !== null && `: ${data.freeze.reason}`}
            </>
          )}
        </p>
        {can('approver') && data !== undefined && (
          <div class="tool-actions">
            <button type="button" onClick={() => setOpen(true)}>
              {isFrozen ? 'Unfreeze' : 'Freeze rule changes'}
            </button>
          </div>
        )}
      </div>
      {isOpen && (
        <Confirm
          title={isFrozen ? 'Allow rule changes' : 'Freeze rule changes'}
          action={isFrozen ? 'Unfreeze' : 'Freeze'}
          reason={isFrozen ? 'optional' : 'required'}
          onConfirm={confirm}
          onClose={() => setOpen(false)}
        >
          <p>{isFrozen ? 'Rules can be created, changed and deleted again, and rollouts go on.' : FREEZE_EFFECT}</p>
        </Confirm>
      )}
    </Panel>
  )
}
