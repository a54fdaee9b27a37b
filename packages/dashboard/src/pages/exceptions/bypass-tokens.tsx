// Bypass tokens: for clients of your own that must not be limited. A secret is shown once.

import { useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { nowMs } from '../../clock.ts'
import { Confirm } from '../../components/dialog.tsx'
import { EmptyState } from '../../components/empty-state.tsx'
import { TextField } from '../../components/field.tsx'
import { Failure } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { Panel } from '../../components/panel.tsx'
import { SecretDialog } from '../../components/secret.tsx'
import { type Health, Status } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { LifetimeField } from '../../exceptions/lifetime-field.tsx'
import { useApi } from '../../resource.ts'
import { can } from '../../session.ts'

type BypassToken = {
  readonly bypass_id: string
  readonly name: string
  readonly state: 'active' | 'pending'
  readonly rules: readonly string[] | null
  readonly paths: readonly string[] | null
  readonly limit_per_minute: number
  readonly by: string
  readonly expires_at: string
  readonly revoked_at: string | null
  readonly uses: number
  readonly last_used_at: string | null
}
type WithSecret = BypassToken & { readonly token: string }
type Asked = { readonly token: BypassToken; readonly action: 'revoke' | 'rotate' | 'approve' }

const PATH = '/rate-limit/bypass-tokens'
const REFRESH_MS = 5000

export function BypassTokens() {
  const [isOpen, setOpen] = useState(false)
  const [asked, setAsked] = useState<Asked>()
  const [secret, setSecret] = useState<string>()
  const list = useApi<{ bypass_tokens: readonly BypassToken[] }>(PATH, {}, { refreshMs: REFRESH_MS })
  const onChange = (token?: string) => {
    setSecret(token)
    list.reload()
  }
  return (
    <Panel
      title="Bypass tokens"
      note={
        can('approver') && (
          <button type="button" class="primary" onClick={() => setOpen(true)}>
            New bypass token
          </button>
        )
      }
    >
      <Failure error={list.error} retry={list.reload} />
      <Table
        caption="Bypass tokens"
        columns={columnsOf(setAsked)}
        rows={list.data === undefined && list.error !== undefined ? [] : list.data?.bypass_tokens}
        rowKey={({ bypass_id: id }) => id}
        empty={
          <EmptyState title="No bypass tokens">
            A bypass token lets your own load test or batch job through, up to a limit of its own. Requests carry it in
            the header <code>X-Sluice-Bypass</code>.
          </EmptyState>
        }
        loadingRows={2}
      />
      {isOpen && <NewToken onChange={onChange} onClose={() => setOpen(false)} />}
      {asked !== undefined && <Ask {...asked} onChange={onChange} onClose={() => setAsked(undefined)} />}
      {secret !== undefined && (
        <SecretDialog
          title="Bypass token"
          secret={secret}
          hint="Clients send it in the header X-Sluice-Bypass"
          onClose={() => setSecret(undefined)}
        />
      )}
    </Panel>
  )
}

function columnsOf(ask: (asked: Asked) => void): readonly Column<BypassToken>[] {
  return [
    { title: 'Name', cell: ({ name }) => name },
    { title: 'State', cell: (token) => <Status health={stateOf(token)[0]}>{stateOf(token)[1]}</Status> },
    { title: 'For', wide: true, cell: ({ rules, paths }) => <span class="mono">{scopeText(rules, paths)}</span> },
    { title: 'Limit', align: 'right', wide: true, cell: (token) => <Num value={token.limit_per_minute} unit="/min" /> },
    { title: 'Uses', align: 'right', wide: true, cell: ({ uses }) => <Num value={uses} /> },
    { title: 'Last used', wide: true, cell: ({ last_used_at: at }) => <Time at={at} as="ago" /> },
    { title: 'Ends', cell: ({ expires_at: at }) => <Time at={at} as="ago" /> },
    {
      title: '',
      align: 'right',
      cell: (token) =>
        can('approver') && (
          <span class="row-actions">
            {actionsOf(token).map(({ action, label }) => (
              <button key={action} type="button" class="link" onClick={() => ask({ token, action })}>
                {label}
              </button>
            ))}
          </span>
        ),
    },
  ]
}

function stateOf({ state, revoked_at: revoked, expires_at: ends }: BypassToken): readonly [Health, string] {
  if (revoked !== null) return ['off', 'revoked']
  if (Date.parse(ends) < nowMs()) return ['off', 'expired']
  return state === 'pending' ? ['warning', 'pending'] : ['good', 'active']
}

function actionsOf(token: BypassToken): readonly { readonly action: Asked['action']; readonly label: string }[] {
  const [health] = stateOf(token)
  if (health === 'off') return []
  const first =
    token.state === 'pending'
      ? ({ action: 'approve', label: 'Approve' } as const)
      : ({ action: 'rotate', label: 'Rotate' } as const)
  return [first, { action: 'revoke', label: 'Revoke' }]
}

function scopeText(rules: readonly string[] | null, paths: readonly string[] | null): string {
  return [...(rules ?? ['every rule']), ...(paths ?? [])].join(', ')
}

type ChangeProps = { readonly onChange: (token?: string) => void; readonly onClose: () => void }

function NewToken({ onChange, onClose }: ChangeProps) {
  const [name, setName] = useState('')
  const [rules, setRules] = useState('')
  const [paths, setPaths] = useState('')
  const [limit, setLimit] = useState('600')
  const [lifetime, setLifetime] = useState('1d')
  const create = async (reason: string) => {
    const body = {
      name: name.trim(),
      ...(wordsOf(rules).length > 0 && { rules: wordsOf(rules) }),
      ...(wordsOf(paths).length > 0 && { paths: wordsOf(paths) }),
      limit_per_minute: Number(limit),
      expires_in: lifetime,
      ...(reason !== '' && { reason }),
    }
    const { token } = await send<WithSecret>(PATH, { method: 'POST', body })
    onChange(token)
  }
  return (
    <Confirm title="New bypass token" action="Create" reason="optional" onConfirm={create} onClose={onClose}>
      <TextField label="Name" hint="Which program uses it." value={name} onValue={setName} required />
      <TextField label="Rules" hint="Ids, separated by spaces. Empty: every rule." value={rules} onValue={setRules} />
      <TextField
        label="Paths"
        hint="Patterns, separated by spaces. Empty: every path."
        value={paths}
        onValue={setPaths}
      />
      <TextField label="Requests per minute" type="number" min="1" value={limit} onValue={setLimit} required />
      <LifetimeField value={lifetime} onValue={setLifetime} />
      <p class="muted">
        Requests with the token are charged to this limit instead of the rules. Bans still hold, and above the limit the
        rules apply.
      </p>
    </Confirm>
  )
}

function wordsOf(text: string): readonly string[] {
  return text.split(/[\s,]+/).filter((word) => word !== '')
}

const TITLES = { revoke: 'Revoke bypass token', rotate: 'Rotate bypass token', approve: 'Approve bypass token' }
const ACTIONS = { revoke: 'Revoke', rotate: 'Rotate', approve: 'Approve' }

function Ask({ token, action, onChange, onClose }: Asked & ChangeProps) {
  const path = `${PATH}/${token.bypass_id}`
  const confirm = async () => {
    if (action === 'revoke') await send(path, { method: 'DELETE' })
    if (action === 'approve') await send(`${path}/approve`, { method: 'POST', body: {} })
    if (action !== 'rotate') return onChange()
    const rotated = await send<WithSecret>(`${path}/rotate`, { method: 'POST', body: { grace: '1h' } })
    onChange(rotated.token)
  }
  const consequences = {
    revoke: 'Within a second, requests with it are decided by the rules, on every node.',
    rotate: 'You get a new secret. The present one stays valid for an hour.',
    approve: 'It is valid on every node within a second of the last approval that it needs.',
  }
  return (
    <Confirm
      title={TITLES[action]}
      action={ACTIONS[action]}
      danger={action === 'revoke'}
      onConfirm={confirm}
      onClose={onClose}
    >
      <p>{token.name}</p>
      <p>{consequences[action]}</p>
    </Confirm>
  )
}
