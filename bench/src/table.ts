// Formats reports as columns for a terminal, and as Markdown between the markers of docs/benchmarks.md.

import type { Machine } from './machine.ts'
import { figure } from './measure.ts'
import { meetsTarget, type Report, type Scenario, targetText } from './report.ts'

const START = '<!-- bench:start -->'
const END = '<!-- bench:end -->'

export function terminalTable(report: Report, { what, targets }: Scenario): string {
  const results = report.results.map(({ contender, median, min, max, unit }) => {
    return [contender, figure(median), spread(min, max), unit]
  })
  const ratios = Object.entries(report.ratios).map(([name, value]) => {
    const target = targets[name]
    return [name, figure(value), targetText(target), meetsTarget(value, target) ? '' : 'missed']
  })
  return [
    `\n${report.scenario}: ${what}`,
    columns([['contender', 'median', 'min..max', 'unit'], ...results]),
    '',
    columns([['ratio', 'measured', 'target', ''], ...ratios]),
    ...(report.skipped ?? []).map((reason) => `  skipped: ${reason}`),
    '',
  ].join('\n')
}

/** Position of the table in a page; throws without markers. */
export function tablePosition(page: string): { readonly start: number; readonly end: number } {
  const [start, end] = [page.indexOf(START), page.indexOf(END)]
  if (start < 0 || end < start)
    throw new Error(`docs/benchmarks.md needs a line "${START}" and below it a line "${END}"`)
  return { start: start + START.length, end }
}

/** Replaces the table between the markers of a page. */
export function withTable(page: string, reports: readonly Report[], scenarios: readonly Scenario[]): string {
  const { start, end } = tablePosition(page)
  return `${page.slice(0, start)}\n${markdown(reports, scenarios)}\n${page.slice(end)}`
}

/** One line per scenario, without medians. */
function markdown(reports: readonly Report[], scenarios: readonly Scenario[]): string {
  const rows = reports.flatMap(({ ratios }, index) => {
    const { what, targets } = scenarios[index] as Scenario // same order as the reports
    const cells = Object.entries(ratios)
      .filter(([name]) => targets[name] !== undefined)
      .map(([name, value]) => {
        const mark = meetsTarget(value, targets[name]) ? '' : ', **missed**'
        return `\`${name}\` ${figure(value)} (${targetText(targets[name])}${mark})`
      })
    return cells.length === 0 ? [] : [`| ${what} | ${cells.join(' · ')} |`] // none: the scenario was skipped
  })
  const head = '| scenario | measured (target) |\n|---|---|'
  return [head, ...rows, '', ...reports.slice(0, 1).map(({ machine }) => conditions(machine))].join('\n')
}

function conditions({ cores, cpu, memory_gb, node, platform, versions }: Machine): string {
  const { sluice, ...peers } = versions
  const compared = Object.entries(peers).map(([name, version]) => `${name} ${version}`)
  const date = new Date().toISOString().slice(0, 10)
  return (
    `Sluice ${sluice} on ${date}: ${cores} cores of ${cpu}, ${memory_gb} GB, ${platform}, Node.js ${node}; ` +
    `${compared.join(', ')}. Medians of alternating rounds: [how it is measured](../bench/README.md).`
  )
}

function spread(min: number, max: number): string {
  return min === max ? '' : `${figure(min)}..${figure(max)}`
}

/** Aligns the first column to the left, the others to the right. */
function columns(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? []
  const line = (row: readonly string[]) =>
    row.map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
  return rows.map((row) => `  ${line(row).join('  ').trimEnd()}`).join('\n')
}
