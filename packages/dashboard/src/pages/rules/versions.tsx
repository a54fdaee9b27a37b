// Versions of the rule set: who changed it, when and why; what changed since; and the way back.

import { useState } from 'preact/hooks'
import { send } from '../../api.ts'
import { Confirm, Dialog } from '../../components/dialog.tsx'
import { Diff } from '../../components/diff.tsx'
import { Failure } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { fullCount } from '../../format.ts'
import { useApi } from '../../resource.ts'
import { type PlainRule, ruleText } from '../../rule-text.ts'
import { can } from '../../session.ts'

const LISTED = 10

type Version = {
  readonly version: number
  readonly rule_count: number
  readonly actor: string
  readonly actor_name: string | null
  readonly reason: string | null
  readonly created_at: string
}
type Change = {
  readonly rule_id: string
  readonly change: 'created' | 'updated' | 'deleted'
  readonly before?: PlainRule
  readonly after?: PlainRule
}
type VersionDiff = { readonly changes: readonly Change[] }

type Props = { readonly current: number | undefined; readonly onChanged: () => void }

export function Versions({ current, onChanged }: Props) {
  const versions = useApi<{ versions: readonly Version[] }>('/rate-limit/rule-set/versions', {
    limit: LISTED,
    ...(current !== undefined && { before: current + 1 }),
  })
  const [compared, setCompared] = useState<number>()
  const [target, setTarget] = useState<number>()
  const columns: Column<Version>[] = [
    { title: 'Version', cell: ({ version }) => <span class="num">{version}</span> },
    { title: 'When', cell: ({ created_at: at }) => <Time at={at} as="ago" /> },
    { title: 'By', wide: true, cell: ({ actor, actor_name: name }) => name ?? actor },
    { title: 'Reason', cell: ({ reason }) => reason ?? <span class="muted">none given</span> },
    { title: 'Rules', align: 'right', wide: true, cell: ({ rule_count: count }) => count },
    {
      title: 'Actions',
      align: 'right',
      cell: ({ version }) =>
        version === current ? (
          <span class="muted">active</span>
        ) : (
          <span class="row-actions">
            <button type="button" class="link" onClick={() => setCompared(version)}>
              Compare<span class="hidden"> version {version} with the active one</span>
            </button>
            {can('editor') && (
              <button type="button" class="link" onClick={() => setTarget(version)}>
                Roll back<span class="hidden"> to version {version}</span>
              </button>
            )}
          </span>
        ),
    },
  ]
  return (
    <Panel title="Versions">
      <Failure error={versions.error} retry={versions.reload} />
      <Table
        caption="Versions of the rule set"
        columns={columns}
        rows={versions.data?.versions}
        rowKey={({ version }) => String(version)}
        empty="No versions yet."
      />
      {compared !== undefined && current !== undefined && (
        <Dialog
          kind="side"
          title={`Version ${compared} against version ${current}`}
          onClose={() => setCompared(undefined)}
        >
          <Comparison from={compared} to={current} />
        </Dialog>
      )}
      {target !== undefined && current !== undefined && (
        <Rollback from={current} to={target} onClose={() => setTarget(undefined)} onDone={onChanged} />
      )}
    </Panel>
  )
}

type ComparisonProps = { readonly from: number; readonly to: number }

/** Differences between two versions, rule by rule. */
function Comparison({ from, to }: ComparisonProps) {
  const { data, error, reload } = useApi<VersionDiff>('/rate-limit/rule-set/diff', { from, to })
  if (data === undefined) return error === undefined ? <p>Comparing …</p> : <Failure error={error} retry={reload} />
  if (data.changes.length === 0) return <p class="muted">No difference.</p>
  return (
    <div class="stack">
      <p>{countText(data.changes.length)}</p>
      <Changes changes={data.changes} />
    </div>
  )
}

/** The service lists many changes without their fields: they are named, and never shown as equal. */
function Changes({ changes }: { readonly changes: readonly Change[] }) {
  if (changes.every(({ before, after }) => before === undefined && after === undefined)) {
    const ids = (kind: Change['change']) => changes.flatMap((one) => (one.change === kind ? [one.rule_id] : []))
    return (
      <>
        <p class="muted">They are too many to show their fields.</p>
        {(['created', 'updated', 'deleted'] as const)
          .filter((kind) => ids(kind).length > 0)
          .map((kind) => (
            <details key={kind}>
              <summary>
                {fullCount(ids(kind).length)} {kind}
              </summary>
              <p class="mono">{ids(kind).join(', ')}</p>
            </details>
          ))}
      </>
    )
  }
  return (
    <>
      {changes.map((change) => (
        <section key={change.rule_id}>
          <h3>
            {change.change} <span class="mono">{change.rule_id}</span>
          </h3>
          <Diff before={textOf(change, 'before')} after={textOf(change, 'after')} />
        </section>
      ))}
    </>
  )
}

/** Summaries leave out fields that did not change, the id included. */
function textOf(change: Change, side: 'before' | 'after'): string {
  const rule = change[side]
  return rule === undefined ? '' : ruleText({ ...rule, rule_id: change.rule_id })
}

function countText(count: number): string {
  return count === 1 ? 'One rule changes:' : `${fullCount(count)} rules change:`
}

type RollbackProps = {
  readonly from: number
  readonly to: number
  readonly onClose: () => void
  readonly onDone: () => void
}

function Rollback({ from, to, onClose, onDone }: RollbackProps) {
  const roll = async (reason: string) => {
    await send('/rate-limit/rule-set/rollback', {
      method: 'POST',
      body: { version: to },
      params: { reason },
      headers: { 'if-match': `"${from}"` },
    })
    onDone()
  }
  return (
    <Confirm
      title={`Roll back to version ${to}`}
      action="Roll back"
      danger
      reason="required"
      onConfirm={roll}
      onClose={onClose}
    >
      <p>
        The rules of version {to} become a new version, at once and on every node. This needs no approval and is not
        guarded. It ends the rollouts of the rules that it changes.
      </p>
      <Comparison from={from} to={to} />
    </Confirm>
  )
}
