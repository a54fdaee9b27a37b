// Result of a simulation as tables: totals, rules, clients, and a chart of the refusals over time.

import type { ClientResult, ReplayResult, RuleResult } from 'sluice/replay'
import type { Terminal } from '../process/terminal.ts'
import type { LogResult } from '../simulation/simulate-log.ts'
import { aligned } from '../text/aligned.ts'
import { escaped } from '../text/escaped.ts'
import { type Paint, paintOn } from './paint.ts'

const CHART_WIDTH = 60
const BLOCKS = '▁▂▃▄▅▆▇█'
const CLIENT_LENGTH_MAX = 40
const MISTAKES_SHOWN = 5

export function simulationText(result: ReplayResult | LogResult, terminal: Terminal): string {
  const paint = paintOn(terminal)
  if (result.replayed === 0) return `no requests to replay\n${mistakesText(result)}`
  const sections = [
    [`${headline(result)}`, ...aligned(totalRows(result))],
    [paint('bold', 'Rules'), ...aligned([ruleHeader(result), ...result.rules.map((rule) => ruleRow(rule, result))])],
    clientLines(result, paint),
    chartLines(result, paint),
    noteLines(result, paint),
  ]
  const shown = sections.filter((lines) => lines.length > 0).map((lines) => lines.join('\n'))
  return `${shown.join('\n\n')}\n${mistakesText(result)}`
}

function headline({ replayed, clients, from, to, sample_rate: rate }: ReplayResult): string {
  const sample = rate < 1 ? `, a sample of ${Number((rate * 100).toPrecision(3))} % of the clients` : ''
  return `${number(replayed)} requests of ${number(clients.seen)} clients, ${time(from)} to ${time(to)}${sample}`
}

const NOW_NAMES = { rules: 'NOW', recorded: 'RECORDED', nothing: '' } as const

function totalRows(result: ReplayResult): string[][] {
  const { now, changes, clients } = result
  const row = (name: string, before: number | null | undefined, after: number, change = '') => [
    name,
    ...(now === null ? [] : [number(before ?? 0)]),
    number(after),
    change,
  ]
  const change = (more: number, fewer: number) =>
    [signed(more, '+'), signed(fewer, '-')].filter((text) => text !== '').join(', ')
  const requests = changes === null ? '' : change(changes.newly_denied, changes.newly_allowed)
  const people = changes === null ? '' : change(changes.clients_newly_denied, changes.clients_newly_allowed)
  return [
    ['', ...(now === null ? [] : [NOW_NAMES[result.against]]), 'NEW'],
    row('allowed', now?.allowed, result.new.allowed),
    row('refused', now?.refused, result.new.refused, requests),
    row('clients refused', clients.now_refused, clients.refused, people),
  ]
}

function ruleHeader({ now }: ReplayResult): string[] {
  return ['RULE', ...(now === null ? [] : ['REFUSED BEFORE']), 'REFUSED', 'CLIENTS', 'FIRST', 'LAST', 'COVERAGE']
}

function ruleRow(rule: RuleResult, { now }: ReplayResult): string[] {
  const { rule_id: id, mode, coverage, reason } = rule
  return [
    mode === 'shadow' ? `${id} (shadow)` : id,
    ...(now === null ? [] : [maybe(rule.now_refused)]),
    maybe(rule.refused),
    maybe(rule.clients_refused),
    time(rule.first_refused_at),
    time(rule.last_refused_at),
    reason === undefined ? coverage : `${coverage}: ${reason}`,
  ]
}

function clientLines({ top, now }: ReplayResult, paint: Paint): string[] {
  if (top.length === 0) return []
  const before = now === null ? [] : ['REFUSED BEFORE']
  const header = ['CLIENT', 'KIND', 'REQUESTS', ...before, 'REFUSED', 'FIRST', 'LAST', 'RULES']
  const row = (client: ClientResult) => [
    cut(client.client === '' ? '-' : client.client),
    client.kind,
    number(client.requests),
    ...(now === null ? [] : [maybe(client.now_refused)]),
    number(client.refused),
    time(client.first_refused_at),
    time(client.last_refused_at),
    client.rules.join(', '),
  ]
  return [paint('bold', 'Clients with the most refused requests'), ...aligned([header, ...top.map(row)])]
}

/** Refused requests per step, merged to the width of the chart. */
function chartLines({ timeline, now }: ReplayResult, paint: Paint): string[] {
  const { step_seconds: step, points } = timeline
  const [first, last] = [points[0], points.at(-1)]
  if (first === undefined || last === undefined || points.every((one) => one.refused + (one.now_refused ?? 0) === 0))
    return []
  const startMs = Date.parse(first.at)
  const steps = (Date.parse(last.at) - startMs) / (step * 1000) + 1
  const width = Math.min(CHART_WIDTH, steps)
  const merged = (read: (point: (typeof points)[number]) => number) => {
    const sums = Array.from({ length: width }, () => 0)
    for (const point of points) {
      const column = Math.floor((((Date.parse(point.at) - startMs) / (step * 1000)) * width) / steps)
      sums[column] = (sums[column] ?? 0) + read(point)
    }
    return sums
  }
  const [news, nows] = [merged(({ refused }) => refused), merged((point) => point.now_refused ?? 0)]
  const most = Math.max(...news, ...nows)
  const bar = (sums: readonly number[]) => sums.map((sum) => block(sum, most)).join('')
  const rows = [...(now === null ? [] : [['before', bar(nows)]]), ['new', bar(news)]]
  const label = `Refused requests over time, ${time(first.at)} to ${time(last.at)}, highest: ${number(most)}`
  return [paint('bold', label), ...aligned(rows)]
}

function block(sum: number, most: number): string {
  return sum === 0 ? ' ' : (BLOCKS[Math.min(BLOCKS.length - 1, Math.floor((sum / most) * BLOCKS.length))] ?? ' ')
}

function noteLines({ inaccuracies, operations }: ReplayResult, paint: Paint): string[] {
  const { invalid, invalid_reason: reason, late, untracked, exceptions, overflowed } = inaccuracies
  const notes = [
    invalid === 0 ? '' : `${number(invalid)} requests were left out: ${reason}`,
    late === 0 ? '' : `${number(late)} requests were out of order by more than 10 s, and were replayed late`,
    untracked === 0 ? '' : `${number(untracked)} requests are not counted per client: too many clients`,
    exceptions === 0
      ? ''
      : `exceptions are not replayed: ${number(exceptions)} recorded requests had an override, bypass token or signal`,
    overflowed === 0 ? '' : `${number(overflowed)} checks shared buckets: too many keys`,
    operations.unmatched === 0 ? '' : `${number(operations.unmatched)} refunds or resets had nothing to change`,
  ]
  return notes.filter((note) => note !== '').map((note) => paint('yellow', `note: ${escaped(note)}`))
}

function mistakesText(result: ReplayResult | LogResult): string {
  if (!('recording' in result) || result.recording.source !== 'log' || result.recording.malformed === 0) return ''
  const { malformed, lines, malformed_lines: mistakes } = result.recording
  const shown = mistakes
    .slice(0, MISTAKES_SHOWN)
    .map(({ file, line, reason }) => `  ${escaped(file)}:${line}: ${reason}`)
  const more = malformed > shown.length ? [`  … and ${number(malformed - shown.length)} more`] : []
  const first = `${number(malformed)} of ${number(lines)} lines are malformed and were skipped:`
  return `\n${[first, ...shown, ...more].join('\n')}\n`
}

/** `2030-01-31 12:00:00`, in UTC. */
function time(text: string | null): string {
  return text === null ? '-' : text.slice(0, 19).replace('T', ' ')
}

function number(value: number): string {
  return value.toLocaleString('en-US')
}

function maybe(value: number | null): string {
  return value === null ? '-' : number(value)
}

function signed(value: number, sign: string): string {
  return value === 0 ? '' : sign + number(value)
}

function cut(text: string): string {
  return text.length <= CLIENT_LENGTH_MAX ? text : `${text.slice(0, CLIENT_LENGTH_MAX - 1)}…`
}
