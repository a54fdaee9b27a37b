// Creates an override or a ban, for one key. Says what will happen before it does.

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { send } from '../api.ts'
import { Confirm } from '../components/dialog.tsx'
import { SelectField, TextField } from '../components/field.tsx'
import { Notice } from '../components/notice.tsx'
import { useApi } from '../resource.ts'
import { LifetimeField, lifetimeBody } from './lifetime-field.tsx'

type RuleList = { readonly rules: readonly { readonly rule_id: string }[] }
export type Created = {
  readonly override_id: string
  readonly state: 'active' | 'pending'
  readonly warnings?: readonly string[]
}

/** `children`: whether it helps, as far as that is known. */
export function CreatedNotice({
  created,
  children,
}: {
  readonly created: Created
  readonly children: ComponentChildren
}) {
  const isPending = created.state === 'pending'
  return (
    <Notice tone={isPending || (created.warnings ?? []).length > 0 ? 'warning' : 'good'}>
      {isPending ? 'Created. It waits for approval.' : 'In force.'} {created.warnings?.join(' ')}{' '}
      {!isPending && children}
    </Notice>
  )
}

const EFFECTS = {
  limit: 'Replace the limit',
  factor: 'Multiply all limits',
  exempt: 'Exempt: no limit',
  ban: 'Ban: refuse every request',
}
type Effect = keyof typeof EFFECTS

type Props = {
  /** Fixed key, such as `user:alice`. Undefined: the user types it. */
  readonly clientKey?: string
  readonly effect?: Effect
  readonly onDone: (created: Created) => void
  readonly onClose: () => void
}

export function OverrideDialog({ clientKey, effect: first = 'factor', onDone, onClose }: Props) {
  const [key, setKey] = useState(clientKey ?? 'user:')
  const [rule, setRule] = useState('')
  const [effect, setEffect] = useState<Effect>(first)
  const [amount, setAmount] = useState('2')
  const [status, setStatus] = useState('429')
  const [lifetime, setLifetime] = useState('1h')
  const rules = useApi<RuleList>('/rate-limit/rules', { enabled: 'any', limit: 1000 })
  const ruleOptions = { '': 'Every rule of this key', ...namesOf(rules.data) }
  const create = async (reason: string) => {
    const target = rule === '' ? { key } : { rule_id: rule, key: key.replace(/^[^:]*:/, '') }
    const body = { ...target, ...effectBody(effect, amount, status), ...lifetimeBody(lifetime), reason }
    onDone(await send<Created>('/rate-limit/overrides', { method: 'POST', body }))
  }
  const isBan = effect === 'ban'
  return (
    <Confirm
      title={clientKey === undefined ? 'New override' : `${isBan ? 'Ban' : 'Override'} ${clientKey}`}
      action={isBan ? 'Ban' : 'Create override'}
      danger={isBan}
      reason="required"
      onConfirm={create}
      onClose={onClose}
    >
      {clientKey === undefined && (
        <TextField
          label="Key"
          hint="user:alice, ip:203.0.113.42, tenant:acme, api_key:k_9 or attributes.device:d7"
          value={key}
          onValue={setKey}
          required
        />
      )}
      <SelectField label="Effect" value={effect} onValue={(value) => setEffect(value as Effect)} options={EFFECTS} />
      <SelectField label="Rule" value={rule} onValue={setRule} options={ruleOptions} />
      {(effect === 'limit' || effect === 'factor') && (
        <TextField
          label={effect === 'limit' ? 'New limit' : 'Factor'}
          hint={effect === 'limit' ? 'Units per window of the rule, from 1.' : '2 doubles every limit, 0.5 halves it.'}
          type="number"
          step={effect === 'limit' ? '1' : 'any'}
          min={effect === 'limit' ? '1' : '0'}
          value={amount}
          onValue={setAmount}
          required
        />
      )}
      {isBan && (
        <SelectField
          label="Status of the response"
          value={status}
          onValue={setStatus}
          options={{ 429: '429 Too Many Requests', 403: '403 Forbidden' }}
        />
      )}
      <LifetimeField value={lifetime} onValue={setLifetime} forever />
      <p class="muted">{CONSEQUENCES[effect]} In force on every node within a second.</p>
    </Confirm>
  )
}

const CONSEQUENCES: Readonly<Record<Effect, string>> = {
  limit: 'The bucket and what was used stay; only the limit changes. Choose a rule: each has its own limit.',
  factor: 'The buckets and what was used stay; every limit of the key changes in proportion.',
  exempt: 'The rule no longer applies to the key.',
  ban: 'Every request of the key is refused, whatever other exceptions exist.',
}

function effectBody(effect: Effect, amount: string, status: string): Readonly<Record<string, unknown>> {
  if (effect === 'exempt') return { exempt: true }
  return effect === 'ban' ? { ban: { status: Number(status) } } : { [effect]: Number(amount) }
}

function namesOf(list: RuleList | undefined): Readonly<Record<string, string>> {
  return Object.fromEntries((list?.rules ?? []).map(({ rule_id: id }) => [id, id]))
}
