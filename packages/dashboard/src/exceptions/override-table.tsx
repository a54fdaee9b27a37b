// Overrides with what the role may do about them.

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { send } from '../api.ts'
import { clientUrl, isClientKind } from '../clients.ts'
import { Confirm } from '../components/dialog.tsx'
import { Tag } from '../components/status.tsx'
import { type Column, Table } from '../components/table.tsx'
import { Time } from '../components/time.tsx'
import { can } from '../session.ts'
import { authorText, effectText, type Override } from './override.ts'

type Props = {
  readonly overrides: readonly Override[] | undefined
  readonly empty: ComponentChildren
  /** Leaves the key out, on the page of one client. */
  readonly withoutKey?: boolean
  readonly onChange: () => void
}

type Asked = { readonly override: Override; readonly action: 'remove' | 'approve' }

export function OverrideTable({ overrides, empty, withoutKey = false, onChange }: Props) {
  const [asked, setAsked] = useState<Asked>()
  const columns: Column<Override>[] = [
    ...(withoutKey ? [] : [{ title: 'Key', cell: ({ key }: Override) => <KeyLink clientKey={key} /> }]),
    { title: 'Rule', cell: ({ rule_id: rule }) => (rule === null ? 'every rule' : <span class="mono">{rule}</span>) },
    { title: 'Effect', cell: (override) => <EffectTag override={override} /> },
    { title: 'Ends', cell: ({ expires_at: at }) => (at === null ? 'never' : <Time at={at} as="ago" />) },
    { title: 'By', wide: true, cell: authorText },
    { title: 'Reason', wide: true, cell: ({ reason }) => reason },
    {
      title: '',
      align: 'right',
      cell: (override) => (
        <span class="row-actions">
          {override.state === 'pending' && can('approver') && (
            <button type="button" class="link" onClick={() => setAsked({ override, action: 'approve' })}>
              Approve
            </button>
          )}
          {can('editor') && (
            <button type="button" class="link" onClick={() => setAsked({ override, action: 'remove' })}>
              Remove
            </button>
          )}
        </span>
      ),
    },
  ]
  return (
    <>
      <Table
        caption="Overrides"
        columns={columns}
        rows={overrides}
        rowKey={({ override_id: id }) => id}
        empty={empty}
        loadingRows={1}
      />
      {asked !== undefined && <Ask {...asked} onChange={onChange} onClose={() => setAsked(undefined)} />}
    </>
  )
}

function Ask({ override, action, onChange, onClose }: Asked & { onChange: () => void; onClose: () => void }) {
  const path = `/rate-limit/overrides/${override.override_id}`
  const isApproval = action === 'approve'
  const confirm = async (reason: string) => {
    if (isApproval) await send(`${path}/approve`, { method: 'POST', body: {} })
    else await send(path, { method: 'DELETE', params: { reason } })
    onChange()
  }
  return (
    <Confirm
      title={isApproval ? 'Approve override' : 'Remove override'}
      action={isApproval ? 'Approve' : 'Remove'}
      {...(!isApproval && { reason: 'optional' as const })}
      onConfirm={confirm}
      onClose={onClose}
    >
      <p>
        <span class="mono">{override.key}</span>: {effectText(override)}, {override.rule_id ?? 'every rule'}.
      </p>
      <p>
        {isApproval
          ? 'It is in force on every node within a second of the last approval that it needs.'
          : 'From then on the rules decide about this key again, on every node within a second.'}
      </p>
    </Confirm>
  )
}

export function EffectTag({ override }: { readonly override: Override }) {
  return (
    <>
      <Tag tone={override.ban === undefined ? 'plain' : 'bad'}>{effectText(override)}</Tag>{' '}
      {override.state === 'pending' && <Tag tone="warning">pending</Tag>}
    </>
  )
}

/** Link to the client of a key, if the key names one. */
export function KeyLink({ clientKey }: { readonly clientKey: string }) {
  const [, kind, id] = /^(\w+):(.+)$/s.exec(clientKey) ?? []
  if (!isClientKind(kind) || id === undefined) return <span class="mono">{clientKey}</span>
  return (
    <a class="mono" href={clientUrl({ kind, id })}>
      {clientKey}
    </a>
  )
}
