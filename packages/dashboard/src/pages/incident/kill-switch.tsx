// Kill switch: disables one rule, or all, without changing the rules.

import { useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { Confirm } from '../../components/dialog.tsx'
import { SelectField } from '../../components/field.tsx'
import { Failure } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { authorText } from '../../exceptions/override.ts'
import { useApi } from '../../resource.ts'
import { can } from '../../session.ts'

type Kill = {
  /** Null: all rules. */
  readonly rule_id: string | null
  readonly since: string
  readonly by: string
  readonly by_name: string | null
  readonly reason: string | null
}
type Kills = { readonly everything: boolean; readonly durable: boolean; readonly kills: readonly Kill[] }
type Asked = { readonly on: boolean; readonly ruleId: string | null | undefined }

const PATH = '/rate-limit/kill-switch'
const REFRESH_MS = 5000

export function KillSwitch() {
  const [asked, setAsked] = useState<Asked>()
  const { data, error, reload } = useApi<Kills>(PATH, {}, { refreshMs: REFRESH_MS })
  return (
    <Panel title="Kill switch">
      <div class="tool">
        <p class="tool-text">
          Disables a harmful rule, or all rules, within a second: on every node, or without a database on this node
          only. The rules themselves do not change; a disabled rule counts and refuses nothing.
        </p>
        <Failure error={error} retry={reload} />
        <p class="tool-state" aria-live="polite">
          {data && <State kills={data} />}
        </p>
        {data !== undefined && data.kills.length > 0 && (
          <Table
            caption="Disabled rules"
            columns={columnsOf(setAsked)}
            rows={data.kills}
            rowKey={({ rule_id: rule }) => rule ?? '*'}
            empty=""
          />
        )}
        {can('approver') && (
          <div class="tool-actions">
            <button type="button" onClick={() => setAsked({ on: true, ruleId: undefined })}>
              Disable a rule
            </button>
            {data?.everything !== true && (
              <button type="button" class="danger" onClick={() => setAsked({ on: true, ruleId: null })}>
                Disable everything
              </button>
            )}
          </div>
        )}
      </div>
      {asked !== undefined && <Ask asked={asked} onDone={reload} onClose={() => setAsked(undefined)} />}
    </Panel>
  )
}

function State({ kills: { everything, kills } }: { readonly kills: Kills }) {
  if (everything) return <Status health="bad">All rules are disabled: every request is allowed</Status>
  if (kills.length === 0) return <Status health="good">Off: no rule is disabled</Status>
  return <Status health="warning">{kills.length === 1 ? '1 rule is' : `${kills.length} rules are`} disabled</Status>
}

function columnsOf(ask: (asked: Asked) => void): readonly Column<Kill>[] {
  return [
    {
      title: 'Rule',
      cell: ({ rule_id: rule }) => (rule === null ? 'everything' : <span class="mono">{rule}</span>),
    },
    { title: 'Since', cell: ({ since }) => <Time at={since} as="ago" /> },
    { title: 'By', wide: true, cell: authorText },
    { title: 'Reason', wide: true, cell: ({ reason }) => reason },
    {
      title: '',
      align: 'right',
      cell: ({ rule_id: rule }) =>
        can('approver') && (
          <button type="button" class="link" onClick={() => ask({ on: false, ruleId: rule })}>
            Enable
          </button>
        ),
    },
  ]
}

type AskProps = { readonly asked: Asked; readonly onDone: () => void; readonly onClose: () => void }

function Ask({ asked: { on, ruleId }, onDone, onClose }: AskProps) {
  const rules = useApi<{ rules: readonly { rule_id: string }[] }>('/rate-limit/rules', { limit: 1000 })
  const ids = rules.data?.rules.map(({ rule_id: id }) => id) ?? []
  const [chosen, setChosen] = useState<string>()
  const isEverything = ruleId === null
  const target = ruleId ?? chosen ?? ids[0] ?? ''
  const confirm = async (reason: string) => {
    const what = isEverything ? { everything: true } : { rule_id: target }
    await send(PATH, { method: 'POST', body: { ...what, on, ...(reason !== '' && { reason }) } })
    onDone()
  }
  return (
    <Confirm
      title={`${on ? 'Disable' : 'Enable'} ${isEverything ? 'everything' : (ruleId ?? 'a rule')}`}
      action={on ? 'Disable' : 'Enable'}
      danger={on}
      reason={on ? 'required' : 'optional'}
      {...(on && isEverything && { typed: 'everything' })}
      onConfirm={confirm}
      onClose={onClose}
    >
      {ruleId === undefined && (
        <SelectField
          label="Rule"
          value={target}
          onValue={setChosen}
          options={Object.fromEntries(ids.map((id) => [id, id]))}
        />
      )}
      <p>{consequence(on, isEverything)}</p>
    </Confirm>
  )
}

function consequence(on: boolean, isEverything: boolean): string {
  if (!on && isEverything) return 'All rules are enabled again, except those that were disabled one by one.'
  if (!on) return 'The rule is enabled again within a second. Its buckets continue from where they were.'
  if (isEverything) {
    return 'No rule refuses anything: every request is allowed until the rules are enabled again. Bans still apply.'
  }
  return 'Within a second, the rule counts and refuses nothing, until it is enabled again.'
}
