// Abuse signals in force. Rules that list their kind tighten for the key.

import { useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { Confirm } from '../../components/dialog.tsx'
import { EmptyState } from '../../components/empty-state.tsx'
import { SelectField, TextField } from '../../components/field.tsx'
import { Failure, Notice } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { Tag } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { KeyLink } from '../../exceptions/override-table.tsx'
import type { Signal, SignalList } from '../../exceptions/signal.ts'
import { useApi } from '../../resource.ts'
import { can } from '../../session.ts'

const PATH = '/rate-limit/signals'
const REFRESH_MS = 5000
const SEVERITIES = { low: 'low', medium: 'medium', high: 'high', critical: 'critical' }
const SECONDS = { 600: '10 minutes', 3600: '1 hour', 86400: '1 day' }

export function Signals() {
  const [isOpen, setOpen] = useState(false)
  const [removed, setRemoved] = useState<Signal>()
  const [warnings, setWarnings] = useState<readonly string[]>([])
  const list = useApi<SignalList>(PATH, { limit: 1000 }, { refreshMs: REFRESH_MS })
  const columns: Column<Signal>[] = [
    { title: 'Key', cell: ({ key }) => <KeyLink clientKey={key} /> },
    { title: 'Kind', cell: ({ kind }) => <span class="mono">{kind}</span> },
    {
      title: 'Severity',
      cell: ({ severity }) => <Tag tone={/high|critical/.test(severity) ? 'bad' : 'warning'}>{severity}</Tag>,
    },
    { title: 'Source', wide: true, cell: ({ source, by }) => source ?? by },
    { title: 'Ends', cell: ({ expires_at: at }) => <Time at={at} as="ago" /> },
    {
      title: '',
      align: 'right',
      cell: (signal) =>
        can('editor') && (
          <button type="button" class="link" onClick={() => setRemoved(signal)}>
            Remove
          </button>
        ),
    },
  ]
  const onDone = (found: readonly string[]) => {
    setWarnings(found)
    list.reload()
  }
  return (
    <Panel
      title="Abuse signals"
      note={
        can('editor') && (
          <button type="button" class="primary" onClick={() => setOpen(true)}>
            Report a key
          </button>
        )
      }
    >
      <Failure error={list.error} retry={list.reload} />
      {warnings.length > 0 && <Notice tone="warning">{warnings.join(' ')}</Notice>}
      <Table
        caption="Abuse signals"
        columns={columns}
        rows={list.data === undefined && list.error !== undefined ? [] : list.data?.signals}
        rowKey={({ signal_id: id }) => id}
        empty={<NoSignals />}
        loadingRows={2}
      />
      {isOpen && <NewSignal onDone={onDone} onClose={() => setOpen(false)} />}
      {removed !== undefined && (
        <RemoveSignal signal={removed} onDone={() => onDone([])} onClose={() => setRemoved(undefined)} />
      )}
    </Panel>
  )
}

type RemoveProps = { readonly signal: Signal; readonly onDone: () => void; readonly onClose: () => void }

function RemoveSignal({ signal, onDone, onClose }: RemoveProps) {
  const remove = () => send(`${PATH}/${signal.signal_id}`, { method: 'DELETE' }).then(onDone)
  return (
    <Confirm title="Remove signal" action="Remove" onConfirm={remove} onClose={onClose}>
      <p>
        Rules stop tightening for <span class="mono">{signal.key}</span> because of{' '}
        <span class="mono">{signal.kind}</span>, on every node within a second.
      </p>
    </Confirm>
  )
}

type NewProps = { readonly onDone: (warnings: readonly string[]) => void; readonly onClose: () => void }

function NewSignal({ onDone, onClose }: NewProps) {
  const [key, setKey] = useState('ip:')
  const [kind, setKind] = useState('credential_stuffing')
  const [severity, setSeverity] = useState('high')
  const [seconds, setSeconds] = useState('600')
  const create = async () => {
    const body = { key: key.trim(), kind: kind.trim(), severity, ttl_seconds: Number(seconds), source: 'dashboard' }
    const { warnings = [] } = await send<{ warnings?: readonly string[] }>(PATH, { method: 'POST', body })
    onDone(warnings)
  }
  return (
    <Confirm title="Report a key" action="Report" onConfirm={create} onClose={onClose}>
      <TextField label="Key" hint="ip:203.0.113.42, user:alice or tenant:acme" value={key} onValue={setKey} required />
      <TextField label="Kind" hint="As in on_signal of rules." value={kind} onValue={setKind} required />
      <SelectField label="Severity" value={severity} onValue={setSeverity} options={SEVERITIES} />
      <SelectField label="Ends after" value={seconds} onValue={setSeconds} options={SECONDS} />
      <p class="muted">Rules that list the kind in on_signal multiply their limits for this key until it ends.</p>
    </Confirm>
  )
}

function NoSignals() {
  return (
    <EmptyState title="No signals">
      Your WAF, login service or fraud detection reports suspicious keys; rules with <code>on_signal</code> tighten for
      them until the signal expires.
    </EmptyState>
  )
}
