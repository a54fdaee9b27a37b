// Reports as people read them: columns on a terminal, Markdown in the README between its two markers.

import type { Machine } from './machine.ts'
import { figure } from './measure.ts'
import { type Report, reaches, type Scenario, targetText } from './report.ts'

const START = '<!-- bench:start -->'
const END = '<!-- bench:end -->'

export function terminalTable(report: Report, { what, targets }: Scenario): string {
  const results = report.results.map(({ contender, median, min, max, unit }) => {
    return [contender, figure(median), spread(min, max), unit]
  })
  const ratios = Object.entries(report.ratios).map(([name, value]) => {
    const target = targets[name]
    return [name, figure(value), targetText(target), reaches(value, target) ? '' : 'below target']
  })
  return [
    `\n${report.scenario}: ${what}`,
    columns([['contender', 'median', 'min..max', 'unit'], ...results]),
    '',
    columns([['ratio', 'measured', 'must reach', ''], ...ratios]),
    '',
  ].join('\n')
}

/** Where the table of a page begins and ends; throws when the page has no place for it. */
export function tablePlace(page: string): { readonly start: number; readonly end: number } {
  const [start, end] = [page.indexOf(START), page.indexOf(END)]
  if (start < 0 || end < start) throw new Error(`README.md needs a line "${START}" and below it a line "${END}"`)
  return { start: start + START.length, end }
}

/** The page with the reports between its markers, and otherwise as it was. */
export function withTable(page: string, reports: readonly Report[], scenarios: readonly Scenario[]): string {
  const { start, end } = tablePlace(page)
  return `${page.slice(0, start)}\n${markdown(reports, scenarios)}\n${page.slice(end)}`
}

/** One line per scenario: what the medians are is told by a run itself. */
function markdown(reports: readonly Report[], scenarios: readonly Scenario[]): string {
  const rows = reports.map(({ ratios }, index) => {
    const { what, targets } = scenarios[index] as Scenario // one per report, in the same order
    const cells = Object.entries(ratios)
      .filter(([name]) => targets[name] !== undefined)
      .map(([name, value]) => {
        const mark = reaches(value, targets[name]) ? '' : ', **missed**'
        return `\`${name}\` ${figure(value)} (${targetText(targets[name])}${mark})`
      })
    return `| ${what} | ${cells.join(' · ')} |`
  })
  const head = '| scenario | measured (must reach) |\n|---|---|'
  return [head, ...rows, '', ...reports.slice(0, 1).map(({ machine }) => conditions(machine))].join('\n')
}

function conditions({ cores, cpu, memory_gb, node, platform, versions }: Machine): string {
  const { sluice, ...peers } = versions
  const compared = Object.entries(peers).map(([name, version]) => `${name} ${version}`)
  const date = new Date().toISOString().slice(0, 10)
  return (
    `Sluice ${sluice} on ${date}: ${cores} cores of ${cpu}, ${memory_gb} GB, ${platform}, Node ${node}; ` +
    `${compared.join(', ')}. Medians of alternating rounds: [how it is measured](bench/README.md).`
  )
}

function spread(min: number, max: number): string {
  return min === max ? '' : `${figure(min)}..${figure(max)}`
}

/** The first column is aligned to the left, the others to the right. */
function columns(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? []
  const line = (row: readonly string[]) =>
    row.map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
  return rows.map((row) => `  ${line(row).join('  ').trimEnd()}`).join('\n')
}
