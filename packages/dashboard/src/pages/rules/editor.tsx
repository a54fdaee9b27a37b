// Editor of one rule as text. The service validates it while the user types; the change is proposed, or saved at once.

import { useEffect, useRef, useState } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { ApiError, send } from '../../api.ts'
import { RuleBucket } from '../../bucket/rule-bucket.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { Diff } from '../../components/diff.tsx'
import { Failure, Notice } from '../../components/notice.tsx'
import { PageHead, Panel } from '../../components/panel.tsx'
import { Status } from '../../components/status.tsx'
import { usePageUrl, useQuery } from '../../location.ts'
import { type PlainRule, ruleText } from '../../rule-text.ts'
import { type ActiveRule, useActiveRule } from './active-rule.ts'
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

/** Texts that were not saved, by rule: this tab keeps them until they are saved or discarded. */
const drafts = {
  nameOf: (ruleId: string | undefined) => `sluice.draft.${ruleId ?? ''}`,
  read: (ruleId: string | undefined) => {
    try {
      return sessionStorage.getItem(drafts.nameOf(ruleId)) ?? undefined
    } catch {
      return undefined // storage is blocked
    }
  },
  write: (ruleId: string | undefined, text: string | undefined) => {
    try {
      if (text === undefined) sessionStorage.removeItem(drafts.nameOf(ruleId))
      else sessionStorage.setItem(drafts.nameOf(ruleId), text)
    } catch {
      // Storage is blocked: the text lasts until the page is left.
    }
  },
}

/** `ruleId` undefined: a new rule. */
export function Editor({ ruleId }: { readonly ruleId: string | undefined }) {
  const [query] = useQuery()
  const [draft] = useState(query.text === undefined ? drafts.read(ruleId) : undefined)
  const [newId, setNewId] = useState<string>()
  const active = useActiveRule(ruleId ?? newId)
  const { setVersion, rule } = active
  const first = query.text ?? draft ?? (ruleId === undefined ? TEMPLATE : undefined)
  const [text, setText] = useState<string | undefined>(first)
  const [wasShown, setShown] = useState(false)
  useEffect(() => {
    if (text === undefined && rule !== undefined) setText(ruleText(rule))
    if (setVersion !== undefined) setShown(true)
  }, [rule, setVersion])
  const onText = (next: string) => {
    setText(next)
    drafts.write(ruleId, next === TEMPLATE || next === ruleText(rule) ? undefined : next)
  }
  return (
    <>
      <PageHead title={ruleId === undefined ? 'New rule' : `Edit ${ruleId}`} />
      <Failure error={active.error} retry={active.reload} />
      {draft !== undefined && text === draft && (
        <Notice>
          This text was not saved when you left.{' '}
          <button type="button" class="link" onClick={() => onText(ruleId === undefined ? TEMPLATE : ruleText(rule))}>
            Discard it
          </button>
        </Notice>
      )}
      {text !== undefined && wasShown && (
        <TextEditor text={text} onText={onText} active={active} ruleId={ruleId} onNewId={setNewId} />
      )}
      {setVersion !== undefined && ruleId !== undefined && rule === undefined && text === undefined && (
        <Notice tone="warning">There is no active rule {ruleId}.</Notice>
      )}
    </>
  )
}

type TextEditorProps = {
  readonly text: string
  readonly onText: (text: string) => void
  readonly active: ActiveRule
  readonly ruleId: string | undefined
  /** Called with the id in the text. */
  readonly onNewId: (id: string | undefined) => void
}

function TextEditor({ text, onText, active, ruleId, onNewId }: TextEditorProps) {
  const { result, isFresh } = useValidation(text)
  const [opened, setOpened] = useState<PlainRule>()
  const compact = result?.compact
  const before = active.rule
  const id = compact?.rule_id ?? idIn(text)
  useEffect(() => onNewId(id), [id])
  const isRenamed = ruleId !== undefined && compact !== undefined && compact.rule_id !== ruleId
  const isReady = isFresh && result?.valid === true && !isRenamed && active.setVersion !== undefined
  const onConflict = () => {
    setOpened(before)
    active.reload()
  }
  return (
    <div class="two-columns editor">
      <div class="stack">
        <Panel title="Rule" note="YAML or JSON">
          <RuleField text={text} onText={onText} result={result} isFresh={isFresh} />
          {isRenamed && <Notice tone="warning">The id of a rule cannot change: use {ruleId}.</Notice>}
          {opened !== undefined && before !== undefined && opened !== before && (
            <Conflict opened={opened} active={before} version={active.version} />
          )}
          <Actions ruleId={ruleId} compact={compact} active={active} isReady={isReady} onConflict={onConflict} />
        </Panel>
        <Panel title="Difference" note={before === undefined ? 'a new rule' : 'against the active version'}>
          <Diff before={ruleText(before)} after={compact === undefined ? text : ruleText(compact)} />
        </Panel>
      </div>
      <div class="stack">
        <Panel title="Matching requests" note="the newest that are recorded">
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

/** Id in a text with mistakes. */
function idIn(text: string): string | undefined {
  return /^[\s{]*"?rule_id"?\s*:\s*["']?([^\s"',]+)/m.exec(text)?.[1]
}

type ConflictProps = { readonly opened: PlainRule; readonly active: PlainRule; readonly version: number | undefined }

function Conflict({ opened, active, version }: ConflictProps) {
  return (
    <Notice tone="warning">
      <p>
        Not saved: the rule was changed after you opened it, in version {version ?? '–'}. Its changes are below. Copy
        those that you want to keep into the text: saving again replaces that version.
      </p>
      <Diff before={ruleText(opened)} after={ruleText(active)} />
    </Notice>
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
  const isInvalid = result?.valid === false && result.failure === undefined
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
        ) : result.failure !== undefined ? (
          <Status health="off">Not checked: {result.failure}</Status>
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
  readonly ruleId: string | undefined
  readonly compact: PlainRule | undefined
  readonly active: ActiveRule
  readonly isReady: boolean
  /** Called if the rule was changed after it was opened. */
  readonly onConflict: () => void
}

function Actions({ ruleId, compact, active, isReady, onConflict }: ActionsProps) {
  const { route } = useLocation()
  const [query] = useQuery()
  const pageUrl = usePageUrl()
  const [open, setOpen] = useState<'propose' | 'save' | undefined>(undefined)
  const { rule: before, version, setVersion = 0 } = active
  const isSame = compact !== undefined && before !== undefined && ruleText(compact) === ruleText(before)
  const leave = (path: string) => {
    drafts.write(ruleId, undefined)
    route(pageUrl(path))
  }
  const done = () => leave(compact === undefined ? '/rules' : rulePath(compact.rule_id))
  const save = async (reason: string) => {
    if (compact === undefined) return
    try {
      await saveRule(compact, before && version, reason)
      done()
    } catch (error) {
      if (!(error instanceof ApiError && error.code === 'VERSION_CONFLICT')) throw error
      onConflict()
    }
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
      <button type="button" class="link" onClick={() => leave(query.back ?? '/rules')}>
        Cancel
      </button>
      {isDisabled && <span class="muted">{isSame ? 'No change yet.' : 'Waits for a valid rule.'}</span>}
      {open === 'propose' && compact !== undefined && (
        <ProposeDialog
          after={compact}
          before={before}
          baseVersion={setVersion}
          onClose={() => setOpen(undefined)}
          onDone={done}
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

/** Creates the rule, or replaces the version that was shown: never one that the user has not seen. */
async function saveRule(rule: PlainRule, version: number | undefined, reason: string): Promise<void> {
  const params = { reason }
  if (version === undefined) await send('/rate-limit/rules', { method: 'POST', body: rule, params })
  else {
    const headers = { 'if-match': `"${version}"` }
    await send(`/rate-limit${rulePath(rule.rule_id)}`, { method: 'PUT', body: rule, params, headers })
  }
}

function rulePath(ruleId: string): string {
  return `/rules/${encodeURIComponent(ruleId)}`
}
