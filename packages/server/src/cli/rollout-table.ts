// A rollout as text: its sentence, its steps, and the figures of the guard with their thresholds.

import type { PlainShownProposal } from '../http/bodies/proposal-body.ts'
import type { Terminal } from '../process/terminal.ts'
import { parseGuard } from '../rollouts/guard-settings.ts'
import type { PlainStep } from '../rollouts/step.ts'
import { aligned } from '../text/aligned.ts'
import { escaped } from '../text/escaped.ts'
import { type Paint, paintOn } from './paint.ts'

export function rolloutText(proposal: PlainShownProposal, terminal: Terminal): string {
  const paint = paintOn(terminal)
  const { proposal_id: id, state, sentence, changes } = proposal
  const title = `${paint('bold', id)}  ${paint(colorOf(proposal), state.replaceAll('_', ' '))}`
  const lines = [
    `${title}  ${changes.map(({ op, rule_id }) => `${op} ${rule_id}`).join(', ')}`,
    `  ${escaped(sentence)}`,
    ...proposal.conflicts.map(({ rule_id, field }) => paint('red', `  conflict: ${rule_id}.${field}`)),
    '',
    ...aligned([['STEP', '', 'TIME', ''], ...proposal.steps.map((step, index) => stepRow(step, index, proposal))]),
  ]
  if (state === 'rolling_out' || state === 'rolled_back') lines.push('', ...guardLines(proposal, paint))
  return `${lines.join('\n')}\n`
}

function colorOf({ state, step }: PlainShownProposal): 'red' | 'green' | 'yellow' | 'bold' {
  if (state === 'rolled_back' || state === 'rejected') return 'red'
  if (state === 'done') return 'green'
  return step?.paused == null ? 'bold' : 'yellow'
}

function stepRow(plain: PlainStep, index: number, { step, state, now }: PlainShownProposal): string[] {
  const what = plain.guard === undefined ? (plain.canary === undefined ? 'shadow' : `canary ${plain.canary}`) : 'guard'
  const time = plain.guard ?? plain.for ?? (typeof plain.shadow === 'string' ? plain.shadow : 'by hand')
  return [String(index + 1), what, time, progress()]

  function progress(): string {
    if (state === 'done') return 'passed'
    if (step === null) return ''
    if (index < step.index) return 'passed'
    if (index > step.index) return ''
    const seconds = step.since === null ? 0 : (Date.parse(now) - Date.parse(step.since)) / 1000
    return `${step.paused === null ? 'now' : 'paused'}, ${Math.max(0, Math.round(seconds))} s`
  }
}

function guardLines(proposal: PlainShownProposal, paint: Paint): string[] {
  const { verdict, guard, state } = proposal
  if (verdict === null) return [thresholds(guard)]
  const color = verdict.outcome === 'pass' ? 'green' : verdict.outcome === 'hold' ? 'yellow' : 'red'
  const outcome = `  guard: ${paint(color, verdict.outcome)}: ${escaped(verdict.reason)}`
  return [...figureRows(proposal), '', ...(state === 'rolling_out' ? [outcome] : []), thresholds(guard)]
}

function figureRows({ verdict, changes, pair_share }: PlainShownProposal): string[] {
  // A node of an earlier version has one share for all rules.
  const shareOf = (ruleId: string) => changes.find(({ rule_id }) => rule_id === ruleId)?.pair_share ?? pair_share
  const rows = (verdict?.rules ?? []).map((rule) => [
    rule.rule_id,
    String(rule.pairs),
    String(rule.newly_denied),
    rule.newly_denied_percent === null ? '-' : `${rule.newly_denied_percent}%`,
    String(rule.keys),
    String(rule.newly_allowed),
    `${Number((shareOf(rule.rule_id) * 100).toFixed(1))}%`,
  ])
  const header = ['RULE', 'PAIRS', 'NEWLY DENIED', 'LAST WINDOW', 'KEYS', 'NEWLY ALLOWED', 'PAIRED KEYS']
  return rows.length === 0 ? [] : aligned([header, ...rows])
}

/** All settings of the guard in one line. */
function thresholds(plain: unknown): string {
  const guard = parseGuard(plain)
  if (guard === 'off' || 'mistakes' in guard) return '  guard off'
  const { newlyDenied: denied, errors, p99, failing, of, windowMs } = guard
  return (
    `  fails at ${denied.points} % of ${denied.minPairs} pairs in ${failing} of ${of} windows ` +
    `of ${windowMs / 1000} s, ` +
    `or ${denied.hardPoints} % of ${denied.hardMinPairs} pairs at once, with ${denied.minKeys} keys (${denied.on}); ` +
    `errors ${errors.percent} % (${errors.on}); p99 ${p99.ms} ms slower (${p99.on})`
  )
}
