// History of one rule: edits, imports and rollbacks from the audit log, and proposals, newest first.

import { useState } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { Dialog } from '../../components/dialog.tsx'
import { Diff } from '../../components/diff.tsx'
import { Failure } from '../../components/notice.tsx'
import { Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { usePageUrl } from '../../location.ts'
import { useApi } from '../../resource.ts'
import { type PlainRule, ruleText } from '../../rule-text.ts'
import { can } from '../../session.ts'
import { type Proposal, stateHealth, stateText } from './rule.ts'

const LISTED = 50

type Entry = {
  readonly seq: number
  readonly at: string
  readonly actor: string
  readonly actor_name: string | null
  readonly action: string
  readonly reason: string | null
  readonly diff: { readonly version?: number; readonly changes?: readonly AuditChange[] } | null
}
type AuditChange = { readonly rule_id: string; readonly before?: PlainRule; readonly after?: PlainRule }

type Row = {
  readonly key: string
  readonly at: string
  readonly by: string
  readonly what: string
  readonly reason: string | null
  readonly version: number | null
  readonly proposal: Proposal | undefined
  /** Undefined: the entry changed no fields. */
  readonly change: { readonly before: string; readonly after: string } | undefined
}

type Props = { readonly ruleId: string; readonly proposals: readonly Proposal[]; readonly onChanged: () => void }

export function History({ ruleId, proposals }: Props) {
  const audit = useApi<{ entries: readonly Entry[] }>('/admin/audit', { target: ruleId, limit: LISTED })
  const [shown, setShown] = useState<Row>()
  const rows = audit.data && [
    ...audit.data.entries.map((entry) => entryRow(entry, ruleId)),
    ...ownRows(proposals, ruleId),
  ]
  return (
    <Panel title="History and audit trail">
      <Failure error={audit.error} retry={audit.reload} />
      <Table
        caption="Changes of this rule"
        columns={columnsOf(ruleId, setShown)}
        rows={rows?.sort((a, b) => Date.parse(b.at) - Date.parse(a.at))}
        rowKey={({ key }) => key}
        empty="No recorded changes."
      />
      {shown?.change !== undefined && (
        <Dialog kind="side" title={shown.what} onClose={() => setShown(undefined)}>
          <p>
            <Time at={shown.at} /> by {shown.by}
            {shown.reason !== null && <>: {shown.reason}</>}
          </p>
          <Diff {...shown.change} />
          {can('editor') && shown.proposal !== undefined && shown.change.before !== '' && (
            <Restore ruleId={ruleId} text={shown.change.before} />
          )}
        </Dialog>
      )}
    </Panel>
  )
}

/** Opens the editor with the text from before a proposal. Audit entries hold changed fields only, not a whole rule. */
function Restore({ ruleId, text }: { readonly ruleId: string; readonly text: string }) {
  const { route } = useLocation()
  const pageUrl = usePageUrl()
  const url = pageUrl(`/rules/${encodeURIComponent(ruleId)}`, { edit: '1', text })
  return (
    <p class="restore">
      <button type="button" onClick={() => route(url)}>
        Restore the text from before
      </button>
    </p>
  )
}

function columnsOf(ruleId: string, show: (row: Row) => void): Column<Row>[] {
  const pageUrl = usePageUrl()
  const path = `/rules/${encodeURIComponent(ruleId)}`
  return [
    { title: 'When', cell: ({ at }) => <Time at={at} /> },
    {
      title: 'What',
      cell: ({ what, proposal }) =>
        proposal === undefined ? (
          what
        ) : (
          <>
            <a href={pageUrl(path, { proposal: proposal.proposal_id })}>{what}</a>{' '}
            <Status health={stateHealth(proposal.state)}>{stateText(proposal)}</Status>
          </>
        ),
    },
    { title: 'By', wide: true, cell: ({ by }) => by },
    { title: 'Reason', cell: ({ reason }) => reason ?? <span class="muted">none given</span>, wide: true },
    { title: 'Version', align: 'right', wide: true, cell: ({ version }) => version ?? '–' },
    {
      title: 'Change',
      align: 'right',
      cell: (row) =>
        row.change !== undefined && (
          <button type="button" class="link" onClick={() => show(row)}>
            Show<span class="hidden"> the change of {row.at}</span>
          </button>
        ),
    },
  ]
}

function entryRow(entry: Entry, ruleId: string): Row {
  const change = entry.diff?.changes?.find(({ rule_id: id }) => id === ruleId)
  const text = (rule: PlainRule | undefined) => (rule === undefined ? '' : ruleText({ ...rule, rule_id: ruleId }))
  // A change of many rules holds only their ids.
  const hasFields = change?.before !== undefined || change?.after !== undefined
  return {
    key: `audit-${entry.seq}`,
    at: entry.at,
    by: entry.actor_name ?? entry.actor,
    what: entry.action,
    reason: entry.reason,
    version: entry.diff?.version ?? null,
    proposal: undefined,
    change: hasFields ? { before: text(change?.before), after: text(change?.after) } : undefined,
  }
}

function ownRows(proposals: readonly Proposal[], ruleId: string): Row[] {
  return proposals
    .filter(({ kind }) => kind === 'change')
    .map((proposal) => {
      const change = proposal.changes.find(({ rule_id: id }) => id === ruleId)
      return {
        key: proposal.proposal_id,
        at: proposal.created_at,
        by: proposal.author_name ?? proposal.author,
        what: `proposal: ${change?.op ?? 'change'}`,
        reason: proposal.reason,
        version: proposal.version,
        proposal,
        change: change && { before: ruleText(change.before), after: ruleText(change.after) },
      }
    })
}
