// API tokens: list, create, revoke. A secret is shown once.

import { useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { nowMs } from '../../clock.ts'
import { Confirm } from '../../components/dialog.tsx'
import { SelectField, TextField } from '../../components/field.tsx'
import { Failure } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { SecretDialog } from '../../components/secret.tsx'
import { type Health, Status } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { useQuery } from '../../location.ts'
import { useApi } from '../../resource.ts'
import { session } from '../../session.ts'

type Token = {
  readonly token_id: string
  readonly name: string
  readonly role: string
  readonly created_at: string
  readonly expires_at: string | null
  readonly revoked_at: string | null
  readonly last_used_at: string | null
  readonly state: 'active' | 'pending'
  readonly approvals?: number
  readonly approvals_required?: number
}

const PATH = '/admin/tokens'
const REFRESH_MS = 15_000
const ROLES = {
  check: 'check: gateways and applications',
  viewer: 'viewer: reads everything',
  editor: 'editor: changes rules and overrides',
  approver: 'approver: also approves, and handles incidents',
  admin: 'admin: everything',
}
const DAY_SECONDS = 86_400
const LIFETIMES = { 1: '1 day', 7: '7 days', 90: '90 days', 365: '1 year', '': 'Until it is revoked' }

export function Tokens() {
  const [query, setQuery] = useQuery()
  const [isOpen, setOpen] = useState(false)
  const [revoked, setRevoked] = useState<Token>()
  const [created, setCreated] = useState<{ readonly token: string } & Token>()
  const list = useApi<{ tokens: readonly Token[] }>(PATH, {}, { refreshMs: REFRESH_MS })
  const showsEnded = query.ended === 'true'
  const tokens = list.data?.tokens.filter((token) => showsEnded || stateOf(token)[0] !== 'off')
  return (
    <Panel
      title="API tokens"
      note={
        <span class="panel-actions">
          <label>
            <input
              type="checkbox"
              checked={showsEnded}
              onChange={() => setQuery({ ended: showsEnded ? undefined : 'true' })}
            />
            revoked and expired
          </label>
          <button type="button" class="primary" onClick={() => setOpen(true)}>
            New token
          </button>
        </span>
      }
    >
      <Failure error={list.error} retry={list.reload} />
      <Table
        caption="API tokens"
        columns={columnsOf(setRevoked)}
        rows={list.data === undefined && list.error !== undefined ? [] : tokens}
        rowKey={({ token_id: id }) => id}
        empty="None in the database."
        loadingRows={4}
      />
      {isOpen && (
        <NewToken
          onCreated={(token) => {
            setCreated(token)
            list.reload()
          }}
          onClose={() => setOpen(false)}
        />
      )}
      {revoked !== undefined && (
        <RevokeToken token={revoked} onDone={list.reload} onClose={() => setRevoked(undefined)} />
      )}
      {created !== undefined && (
        <SecretDialog
          title="API token"
          secret={created.token}
          hint={
            created.state === 'pending'
              ? `Rejected until others approve it: sluice token approve ${created.token_id}`
              : 'Programs send it as Authorization: Bearer …'
          }
          onClose={() => setCreated(undefined)}
        />
      )}
    </Panel>
  )
}

function columnsOf(revoke: (token: Token) => void): readonly Column<Token>[] {
  return [
    {
      title: 'Name',
      cell: ({ name, token_id: id }) => (
        <>
          {name} {id === session.value?.token_id && <span class="muted">(this session)</span>}
        </>
      ),
    },
    { title: 'Role', cell: ({ role }) => <span class="num">{role}</span> },
    { title: 'State', wide: true, cell: (token) => <Status health={stateOf(token)[0]}>{stateOf(token)[1]}</Status> },
    { title: 'Id', wide: true, cell: ({ token_id: id }) => <span class="mono">{id}</span> },
    { title: 'Created', wide: true, cell: ({ created_at: at }) => <Time at={at} as="ago" /> },
    { title: 'Last used', cell: ({ last_used_at: at }) => <Time at={at} as="ago" /> },
    { title: 'Ends', wide: true, cell: ({ expires_at: at }) => <Time at={at} as="ago" /> },
    {
      title: '',
      align: 'right',
      cell: (token) =>
        stateOf(token)[0] !== 'off' && (
          <button type="button" class="link" aria-label={`Revoke ${token.name}`} onClick={() => revoke(token)}>
            {token.state === 'pending' ? 'Withdraw' : 'Revoke'}
          </button>
        ),
    },
  ]
}

function stateOf({ revoked_at: revoked, expires_at: ends, ...token }: Token): readonly [Health, string] {
  if (token.state === 'pending')
    return ['warning', `waits: ${token.approvals} of ${token.approvals_required} approvals`]
  if (revoked !== null) return ['off', 'revoked']
  if (ends !== null && Date.parse(ends) < nowMs()) return ['off', 'expired']
  return ['good', 'valid']
}

type NewProps = {
  readonly onCreated: (token: { readonly token: string } & Token) => void
  readonly onClose: () => void
}

function NewToken({ onCreated, onClose }: NewProps) {
  const [name, setName] = useState('')
  const [role, setRole] = useState('check')
  const [days, setDays] = useState('90')
  const create = async () => {
    const body = { name: name.trim(), role, ...(days !== '' && { ttl_seconds: Number(days) * DAY_SECONDS }) }
    onCreated(await send<{ readonly token: string } & Token>(PATH, { method: 'POST', body }))
  }
  return (
    <Confirm title="New API token" action="Create" onConfirm={create} onClose={onClose}>
      <TextField label="Name" hint="The person or program that uses it." value={name} onValue={setName} required />
      <SelectField label="Role" value={role} onValue={setRole} options={ROLES} />
      <SelectField label="Valid for" value={days} onValue={setDays} options={LIFETIMES} />
      <p class="muted">One token for each person and program, with the smallest role that is enough.</p>
    </Confirm>
  )
}

type RevokeProps = { readonly token: Token; readonly onDone: () => void; readonly onClose: () => void }

function RevokeToken({ token, onDone, onClose }: RevokeProps) {
  const isOwn = token.token_id === session.value?.token_id
  return (
    <Confirm
      title="Revoke token"
      action="Revoke"
      danger
      onConfirm={() => send(`${PATH}/${token.token_id}`, { method: 'DELETE' }).then(onDone)}
      onClose={onClose}
    >
      <p>
        {token.name}, {token.role}
      </p>
      <p>
        Requests with it are refused at once here, and within a second on other nodes. Its sessions end. It cannot be
        undone.
        {isOwn && ' This is the token of your own session: you will be signed out.'}
      </p>
    </Confirm>
  )
}
