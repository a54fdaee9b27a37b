// One rule: its rollout, definition, traffic, bucket and history.

import { useState } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { send } from '../../api.ts'
import { RuleBucket } from '../../bucket/rule-bucket.tsx'
import { Chart } from '../../components/chart.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { EmptyState } from '../../components/empty-state.tsx'
import { Failure } from '../../components/notice.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { RangePicker } from '../../components/range-picker.tsx'
import { percent, shortCount } from '../../format.ts'
import { usePageUrl, useQuery, useRange } from '../../location.ts'
import { useApi } from '../../resource.ts'
import { ruleText } from '../../rule-text.ts'
import { can } from '../../session.ts'
import { History } from './history.tsx'
import { changes, Mode } from './list.tsx'
import { ProposalPanel } from './proposal-panel.tsx'
import { endpointText, isOpen, limitsOf, limitText, type ProposalList, type Rule, scopeText } from './rule.ts'
import { useTraffic } from './traffic.ts'
import { useCompact } from './use-compact.ts'

const REFRESH_MS = 5000

export function RulePage({ ruleId }: { readonly ruleId: string }) {
  const [query] = useQuery()
  const rules = useApi<{ readonly rules: readonly Rule[] }>('/rate-limit/rules', { enabled: 'any', search: ruleId })
  const proposals = useApi<ProposalList>('/rate-limit/proposals', { limit: 100 }, { refreshMs: REFRESH_MS })
  const rule = rules.data?.rules.find(({ rule_id: id }) => id === ruleId)
  const own = proposals.data?.proposals.filter((proposal) => changes(proposal, ruleId)) ?? []
  // The list has the newest proposals only; a link may lead to an older one.
  const shown = query.proposal === undefined ? own.filter(isOpen).map(({ proposal_id: id }) => id) : [query.proposal]
  const reload = () => {
    rules.reload()
    proposals.reload()
  }
  return (
    <>
      <PageHead title={ruleId}>
        <RangePicker />
        <Links ruleId={ruleId} hasRule={rule !== undefined} hasDatabase={proposals.errorCode === undefined} />
      </PageHead>
      <Failure error={rules.error} retry={rules.reload} />
      <div class="stack">
        {shown.map((id) => (
          <ProposalPanel key={id} proposalId={id} onMoved={reload} />
        ))}
        {rules.data !== undefined && rule === undefined && (
          <EmptyState
            title={shown.length === 0 ? 'No such rule' : 'This rule is not in the rule set yet'}
            action={<a href="/rules">All rules</a>}
          >
            {shown.length === 0 ? 'It was deleted, or never existed.' : 'The proposal above creates it.'}
          </EmptyState>
        )}
        {rule !== undefined && <Facts rule={rule} />}
        {proposals.errorCode === undefined && <History ruleId={ruleId} proposals={own} onChanged={reload} />}
      </div>
    </>
  )
}

type LinksProps = { readonly ruleId: string; readonly hasRule: boolean; readonly hasDatabase: boolean }

function Links({ ruleId, hasRule, hasDatabase }: LinksProps) {
  const pageUrl = usePageUrl()
  const { route } = useLocation()
  const [isDeleting, setDeleting] = useState(false)
  const path = `/rules/${encodeURIComponent(ruleId)}`
  const remove = async (reason: string) => {
    const change = { op: 'delete', rule: { rule_id: ruleId } }
    await send('/rate-limit/proposals', { method: 'POST', body: { changes: [change], reason } })
    route(pageUrl(path))
  }
  return (
    <>
      <a class="button" href={pageUrl('/live', { rule: ruleId })}>
        Live tail
      </a>
      {hasRule && (
        <a class="button" href={pageUrl('/what-if', { rule: ruleId })}>
          What if
        </a>
      )}
      {hasRule && hasDatabase && can('editor') && (
        <>
          <a class="button" href={pageUrl(path, { edit: '1' })}>
            Edit
          </a>
          <button type="button" onClick={() => setDeleting(true)}>
            Delete
          </button>
        </>
      )}
      {isDeleting && (
        <Confirm
          title={`Delete ${ruleId}`}
          action="Propose deletion"
          danger
          reason="required"
          onConfirm={remove}
          onClose={() => setDeleting(false)}
        >
          <p>
            Creates a proposal that deletes the rule. Nothing changes until the proposal is started; it then rolls out
            in steps under guard, and all requests that only this rule refuses are admitted.
          </p>
        </Confirm>
      )}
    </>
  )
}

function Facts({ rule }: { readonly rule: Rule }) {
  const limits = limitsOf(rule).map(({ limit, window_seconds: windowSeconds, burst }) => {
    return { limit, windowSeconds, ...(burst !== undefined && { burst }) }
  })
  const compact = useCompact(rule)
  return (
    <>
      <Panel title="Requests" note={<Mode rule={rule} />}>
        <Traffic ruleId={rule.rule_id} />
      </Panel>
      <div class="two-columns">
        <Panel title="Definition" note={`since version ${rule.version ?? '–'}`}>
          <p>
            {rule.name !== undefined && <>{rule.name}: </>}
            {limitText(rule)}, {scopeText(rule)}, on <span class="mono">{endpointText(rule)}</span>
          </p>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard */}
          <pre class="rule-text" tabIndex={0}>
            {ruleText(compact)}
          </pre>
        </Panel>
        <Panel title="Bucket" note="simulated, one client">
          <RuleBucket algorithm={rule.algorithm} limits={limits} />
        </Panel>
      </div>
    </>
  )
}

function Traffic({ ruleId }: { readonly ruleId: string }) {
  const { timeline, byRule } = useTraffic(useRange())
  const traffic = byRule.get(ruleId)
  if (timeline.errorCode === 'NO_ANALYTICS') return <p class="muted">This node stores no totals.</p>
  if (timeline.data !== undefined && traffic === undefined) {
    return (
      <EmptyState title="No requests in this time range">
        The chart shows what this rule admitted and refused, about two seconds after it happens.
      </EmptyState>
    )
  }
  const { times = [], allowed = [], refused = [], allowedTotal = 0, refusedTotal = 0 } = traffic ?? {}
  const share = percent(refusedTotal / Math.max(1, allowedTotal + refusedTotal))
  return (
    <>
      <Failure error={timeline.error} retry={timeline.reload} />
      <Chart
        summary={`Requests of the rule: ${refusedTotal} of ${allowedTotal + refusedTotal} refused, ${share}`}
        times={times}
        series={[
          { name: 'Refused', colour: 'refused', values: refused },
          { name: 'Allowed', colour: 'allowed', values: allowed },
        ]}
        stacked
        format={shortCount}
        height={150}
      />
      <p class="muted">
        {shortCount(refusedTotal)} of {shortCount(allowedTotal + refusedTotal)} requests refused: {share}
      </p>
    </>
  )
}
