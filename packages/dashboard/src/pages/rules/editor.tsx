// Editor of one rule as text. The service validates it while the user types; the change is proposed, or saved at once.

import { useEffect, useRef, useState } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { send } from '../../api.ts'
import { RuleBucket } from '../../bucket/rule-bucket.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { Diff } from '../../components/diff.tsx'
import { Failure, Notice } from '../../components/notice.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { usePageUrl, useQuery } from '../../location.ts'
import { useApi } from '../../resource.ts'
import { type PlainRule, ruleText } from '../../rule-text.ts'
import { MatchPreview } from './match-preview.tsx'
import { ProposeDialog } from './propose-dialog.tsx'
import { limitsOf, type Rule } from './rule.ts'
import { type Finding, useValidation, type Validation } from './validation.ts'

const TEMPLATE = `rule_id: my_rule
endpoint_pattern: /api/v1/messages
method: POST
scope: per_user
limit: 100
window_seconds: 60
`

type RuleSet = { readonly version: number; readonly rules: readonly PlainRule[] }

/** `ruleId` undefined: a new rule. */
export function Editor({ ruleId }: { readonly ruleId: string | undefined }) {
  const [query] = useQuery()
  const set = useApi<RuleSet>('/rate-limit/rule-set', { format: 'json' })
  const active = set.data?.rules.find(({ rule_id: id }) => id === ruleId)
  const [text, setText] = useState<string | undefined>(query.text ?? (ruleId === undefined ? TEMPLATE : undefined))
  useEffect(() => {
    if (text === undefined && active !== undefined) setText(ruleText(active))
  }, [active])
  return (
    <>
      <PageHead title={ruleId === undefined ? 'New rule' : `Edit ${ruleId}`} />
      <Failure error={set.error} retry={set.reload} />
      {text !== undefined && set.data !== undefined && (
        <TextEditor text={text} onText={setText} set={set.data} ruleId={ruleId} />
      )}
      {set.data !== undefined && ruleId !== undefined && active === undefined && text === undefined && (
        <Notice tone="warning">There is no active rule {ruleId}.</Notice>
      )}
    </>
  )
}

type TextEditorProps = {
  readonly text: string
  readonly onText: (text: string) => void
  readonly set: RuleSet
  readonly ruleId: string | undefined
}

function TextEditor({ text, onText, set, ruleId }: TextEditorProps) {
  const { result, isFresh } = useValidation(text)
  const compact = result?.compact
  const before = set.rules.find(({ rule_id: id }) => id === compact?.rule_id)
  const isRenamed = ruleId !== undefined && compact !== undefined && compact.rule_id !== ruleId
  const isReady = isFresh && result?.valid === true && !isRenamed
  return (
    <div class="two-columns editor">
      <div class="stack">
        <Panel title="Rule" note="YAML or JSON">
          <RuleField text={text} onText={onText} result={result} isFresh={isFresh} />
          {isRenamed && <Notice tone="warning">The id of a rule cannot change: use {ruleId}.</Notice>}
          <Actions compact={compact} before={before} version={set.version} isReady={isReady} />
        </Panel>
        <Panel title="Difference" note={before === undefined ? 'a new rule' : 'against the active version'}>
          <Diff before={ruleText(before)} after={compact === undefined ? text : ruleText(compact)} />
        </Panel>
      </div>
      <div class="stack">
        <Panel title="Matching requests" note="of the last 1,000">
          <MatchPreview rule={result?.rule} />
        </Panel>
        <Panel title="Bucket" note="simulated, one client">
          {result?.rule === undefined ? (
            <p class="muted">Appears once the rule is valid.</p>
          ) : (
            <ParsedBucket rule={result.rule} />
          )}
        </Panel>
      </div>
    </div>
  )
}

function ParsedBucket({ rule }: { readonly rule: Rule }) {
  const limits = limitsOf(rule).map(({ limit, window_seconds: windowSeconds, burst }) => {
    return { limit, windowSeconds, ...(burst !== undefined && { burst }) }
  })
  return <RuleBucket algorithm={rule.algorithm} limits={limits} />
}

type RuleFieldProps = {
  readonly text: string
  readonly onText: (text: string) => void
  readonly result: Validation | undefined
  readonly isFresh: boolean
}

function RuleField({ text, onText, result, isFresh }: RuleFieldProps) {
  const area = useRef<HTMLTextAreaElement>(null)
  const jump = (line: number) => {
    const lines = text.split('\n')
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0)
    area.current?.focus()
    area.current?.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0))
  }
  const isInvalid = result?.valid === false
  return (
    <div class="field">
      <label for="rule-text">Rule as text</label>
      <textarea
        id="rule-text"
        ref={area}
        class="rule-area"
        rows={Math.max(12, text.split('\n').length + 1)}
        spellcheck={false}
        aria-invalid={isInvalid}
        aria-describedby="rule-findings"
        value={text}
        onInput={({ currentTarget }) => onText(currentTarget.value)}
      />
      <div id="rule-findings" role="status" class="findings">
        {result === undefined || !isFresh ? (
          <Status health="off">Checking …</Status>
        ) : (
          <Status health={isInvalid ? 'bad' : 'good'}>
            {isInvalid ? `${result.errors.length} ${result.errors.length === 1 ? 'mistake' : 'mistakes'}` : 'Valid'}
          </Status>
        )}
        <Findings findings={result?.errors ?? []} kind="bad" onJump={jump} />
        <Findings findings={result?.warnings ?? []} kind="warning" onJump={jump} />
      </div>
    </div>
  )
}

type FindingsProps = {
  readonly findings: readonly Finding[]
  readonly kind: 'bad' | 'warning'
  readonly onJump: (line: number) => void
}

function Findings({ findings, kind, onJump }: FindingsProps) {
  return (
    <ul>
      {findings.map(({ field, fix, line }, index) => (
        <li key={index} class={`finding finding-${kind}`}>
          {line !== undefined && (
            <button type="button" class="link" onClick={() => onJump(line)}>
              line {line}
            </button>
          )}{' '}
          {field !== `line ${line}` && <strong class="mono">{field}</strong>} {fix}
        </li>
      ))}
    </ul>
  )
}

type ActionsProps = {
  readonly compact: PlainRule | undefined
  readonly before: PlainRule | undefined
  readonly version: number
  readonly isReady: boolean
}

function Actions({ compact, before, version, isReady }: ActionsProps) {
  const { route } = useLocation()
  const [query] = useQuery()
  const pageUrl = usePageUrl()
  const [open, setOpen] = useState<'propose' | 'save' | undefined>(undefined)
  const isSame = compact !== undefined && before !== undefined && ruleText(compact) === ruleText(before)
  const leave = () => route(pageUrl(compact === undefined ? '/rules' : rulePath(compact.rule_id)))
  const save = async (reason: string) => {
    if (compact === undefined) return
    const method = before === undefined ? 'POST' : 'PUT'
    const path = before === undefined ? '/rate-limit/rules' : `/rate-limit${rulePath(compact.rule_id)}`
    await send(path, { method, body: compact, params: { reason } })
    leave()
  }
  const isDisabled = !isReady || isSame
  return (
    <div class="row-actions">
      <button type="button" class="primary" disabled={isDisabled} onClick={() => setOpen('propose')}>
        Propose …
      </button>
      <button type="button" disabled={isDisabled} onClick={() => setOpen('save')}>
        Save now …
      </button>
      <button type="button" class="link" onClick={() => route(pageUrl(query.back ?? '/rules'))}>
        Cancel
      </button>
      {isSame && <span class="muted">No change yet.</span>}
      {open === 'propose' && compact !== undefined && (
        <ProposeDialog
          after={compact}
          before={before}
          baseVersion={version}
          onClose={() => setOpen(undefined)}
          onDone={leave}
        />
      )}
      {open === 'save' && (
        <Confirm
          title={before === undefined ? 'Create the rule now' : 'Change the rule now'}
          action="Save"
          reason="required"
          onConfirm={save}
          onClose={() => setOpen(undefined)}
        >
          <p>
            The change applies to all requests on every node within seconds, without shadow or canary steps. The guard
            watches it and rolls it back if too many requests are newly denied. If approvals are required, the service
            refuses it: propose it instead.
          </p>
          <Diff before={ruleText(before)} after={ruleText(compact)} />
        </Confirm>
      )}
    </div>
  )
}

function rulePath(ruleId: string): string {
  return `/rules/${encodeURIComponent(ruleId)}`
}
