// All rules with their traffic and rollouts, open proposals, and the versions of the rule set.

import { nowMs } from '../../clock.ts'
import { EmptyState } from '../../components/empty-state.tsx'
import { QueryField } from '../../components/field.tsx'
import { Failure } from '../../components/notice.tsx'
import { Num } from '../../components/number.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { RangePicker } from '../../components/range-picker.tsx'
import { Sparkline } from '../../components/sparkline.tsx'
import { Status, Tag } from '../../components/status.tsx'
import { type Column, Table } from '../../components/table.tsx'
import { Time } from '../../components/time.tsx'
import { grouped } from '../../format.ts'
import { urlOf, usePageUrl, useQuery, useRange } from '../../location.ts'
import { useApi } from '../../resource.ts'
import { can } from '../../session.ts'
import {
  endpointText,
  isOpen,
  limitText,
  type Proposal,
  type ProposalList,
  type Rule,
  type RuleList,
  scopeText,
  stateHealth,
  stateText,
  stepName,
} from './rule.ts'
import { type RuleTraffic, useTraffic } from './traffic.ts'
import { Versions } from './versions.tsx'

const REFRESH_MS = 5000
/** Rules per page. */
const PAGE = 100

export function List() {
  const [query] = useQuery()
  const pageUrl = usePageUrl()
  const { find = '', after } = query
  const params = { enabled: 'any', limit: PAGE, search: find, after }
  const rules = useApi<RuleList>('/rate-limit/rules', params, { refreshMs: REFRESH_MS })
  const proposals = useApi<ProposalList>('/rate-limit/proposals', { limit: 100 }, { refreshMs: REFRESH_MS })
  const { byRule } = useTraffic(useRange())
  const hasDatabase = proposals.errorCode === undefined
  const open = proposals.data?.proposals.filter(isOpen) ?? []
  return (
    <>
      <PageHead title="Rules">
        <QueryField label="Find a rule" name="find" resets={{ after: undefined }} />
        <RangePicker />
        {can('editor') && hasDatabase && (
          <a class="button primary" href={pageUrl('/rules', { edit: '1' })}>
            New rule
          </a>
        )}
      </PageHead>
      <Failure error={rules.error} retry={rules.reload} />
      <div class="stack">
        <Panel title="Active rules" note={rules.data && `version ${rules.data.version}`}>
          <Table
            caption="Active rules"
            columns={columnsOf(byRule, open, pageUrl)}
            rows={rules.data?.rules}
            rowKey={({ rule_id: id }) => id}
            empty={<NoRules isFiltered={find !== '' || after !== undefined} />}
          />
          <Pages next={rules.data?.next} />
        </Panel>
        {open.length > 0 && <OpenProposals proposals={open} />}
        {hasDatabase && <Versions current={rules.data?.version} onChanged={rules.reload} />}
      </div>
    </>
  )
}

/** Links to the next page of a large rule set, and back to the first. */
function Pages({ next }: { readonly next: string | undefined }) {
  const [query] = useQuery()
  if (next === undefined && query.after === undefined) return null
  return (
    <nav class="row-actions" aria-label="Pages of rules">
      {query.after !== undefined && <a href={urlOf('/rules', { ...query, after: undefined })}>First rules</a>}
      {next !== undefined && <a href={urlOf('/rules', { ...query, after: next })}>Next {PAGE} rules</a>}
    </nav>
  )
}

type PageUrl = ReturnType<typeof usePageUrl>

function columnsOf(
  byRule: ReadonlyMap<string, RuleTraffic>,
  open: readonly Proposal[],
  pageUrl: PageUrl,
): Column<Rule>[] {
  const share = (traffic: RuleTraffic | undefined) =>
    traffic && traffic.refusedTotal / Math.max(1, traffic.allowedTotal + traffic.refusedTotal)
  return [
    {
      title: 'Rule',
      cell: (rule) => (
        <>
          <a class="mono" href={pageUrl(`/rules/${encodeURIComponent(rule.rule_id)}`)}>
            {rule.rule_id}
          </a>
          {rule.name !== undefined && <div class="muted rule-name">{rule.name}</div>}
          <div class="narrow rule-name">
            {limitText(rule)}, {scopeText(rule)}
          </div>
        </>
      ),
    },
    {
      title: 'Limit',
      wide: true,
      cell: (rule) => (
        <>
          {limitText(rule)}
          <div class="muted rule-name">{scopeText(rule)}</div>
        </>
      ),
    },
    { title: 'Endpoint', cell: (rule) => <span class="mono endpoint">{endpointText(rule)}</span>, wide: true },
    {
      title: 'Refused',
      wide: true,
      cell: ({ rule_id: id }) => <Sparkline values={byRule.get(id)?.refused ?? []} />,
    },
    { title: 'Share', align: 'right', cell: ({ rule_id: id }) => <Num value={share(byRule.get(id))} as="percent" /> },
    {
      title: 'Mode',
      cell: (rule) => {
        const proposal = open.find((one) => changes(one, rule.rule_id))
        return (
          <>
            <Mode rule={rule} />
            <div class="narrow">{proposal !== undefined && <Rollout proposal={proposal} />}</div>
          </>
        )
      },
    },
    {
      title: 'Rollout',
      wide: true,
      cell: ({ rule_id: id }) => <Rollout proposal={open.find((one) => changes(one, id))} />,
    },
  ]
}

export function changes({ changes: some }: Proposal, ruleId: string): boolean {
  return some.some(({ rule_id: id }) => id === ruleId)
}

export function Mode({ rule: { enabled, mode, expires_at: end } }: { readonly rule: Rule }) {
  if (end !== undefined && Date.parse(end) <= nowMs()) return <Tag>expired</Tag>
  if (!enabled) return <Tag>disabled</Tag>
  return mode === 'shadow' ? <Tag tone="warning">shadow</Tag> : <Tag tone="good">enforce</Tag>
}

function Rollout({ proposal }: { readonly proposal: Proposal | undefined }) {
  if (proposal === undefined) return <span class="muted">–</span>
  const { state, step, steps } = proposal
  const current = step === null ? undefined : steps[step.index]
  return (
    <Status health={stateHealth(state)}>
      {current === undefined ? stateText(proposal) : `${stepName(current)}${step?.paused == null ? '' : ', paused'}`}
    </Status>
  )
}

function OpenProposals({ proposals }: { readonly proposals: readonly Proposal[] }) {
  const pageUrl = usePageUrl()
  const columns: Column<Proposal>[] = [
    {
      title: 'Rule',
      cell: ({ changes: some, proposal_id: id }) =>
        some.map(({ rule_id: rule, op }) => (
          <div key={rule}>
            {op}{' '}
            <a class="mono proposal-rule" href={pageUrl(`/rules/${encodeURIComponent(rule)}`, { proposal: id })}>
              {rule}
            </a>
          </div>
        )),
    },
    {
      title: 'State',
      cell: (proposal) => {
        const [text, sentence] = [stateText(proposal), grouped(proposal.sentence)]
        const isRepeated = sentence.startsWith(text)
        return (
          <>
            <Status health={stateHealth(proposal.state)}>{isRepeated ? sentence : text}</Status>
            {!isRepeated && <div class="muted">{sentence}</div>}
          </>
        )
      },
    },
    { title: 'By', cell: ({ author, author_name: name }) => name ?? author, wide: true },
    { title: 'Reason', cell: ({ reason }) => reason, wide: true },
    { title: 'Since', cell: ({ created_at: at }) => <Time at={at} as="ago" />, align: 'right' },
  ]
  return (
    <Panel title="Open proposals">
      <Table
        caption="Open proposals"
        columns={columns}
        rows={proposals}
        rowKey={({ proposal_id: id }) => id}
        empty="No open proposals."
      />
    </Panel>
  )
}

function NoRules({ isFiltered }: { readonly isFiltered: boolean }) {
  if (isFiltered) return <>No rule matches.</>
  return (
    <EmptyState title="No rules yet" action={<a href="/learn">Learn how a rule works</a>}>
      A rule limits how many requests a client may send per window. Without rules, every request is admitted.
    </EmptyState>
  )
}
