// `npm run bench -- [scenario]`: runs one scenario in this process, or all in their own for docs/benchmarks.md.
// Tables and JSON go to standard output, progress to standard error. Exit codes: 1 failed or, with --assert, below a
// target; 2 invalid arguments.

import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { thisMachine } from './machine.ts'
import { progress } from './measure.ts'
import { meetsTarget, type Report, type Scenario } from './report.ts'
import { isScenario, loadScenario, SCENARIOS, type ScenarioName } from './scenarios.ts'
import { tablePosition, terminalTable, withTable } from './table.ts'

const USAGE = `usage: npm run bench -- [scenario] [--json] [--rounds N] [--assert]
scenarios: ${SCENARIOS.join(', ')}; without one, runs all and updates the table of docs/benchmarks.md
  --json      print the report as JSON on the last line
  --rounds N  measured rounds per contender
  --assert    exit with 1 if a ratio misses its target`

const PAGE = new URL('../../docs/benchmarks.md', import.meta.url)

type Options = { json: boolean; rounds: number | undefined; assert: boolean }

process.setMaxListeners(50) // each server adds an exit listener
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1)) // stops servers
process.exitCode = await main(process.argv.slice(2))

async function main(args: string[]): Promise<number> {
  const parsed = parseOptions(args)
  if (typeof parsed === 'string') {
    process.stderr.write(`${parsed}\n${USAGE}\n`)
    return 2
  }
  const { name, options } = parsed
  if (name === undefined) tablePosition(readFileSync(PAGE, 'utf8')) // fails early if the page has no table
  const reports: Report[] = []
  const scenarios: Scenario[] = []
  let failed = false
  for (const each of name === undefined ? SCENARIOS : [name]) {
    const scenario = await loadScenario(each)
    const measured = name === undefined ? inOwnProcess(each, options) : reportOf(each, scenario, options)
    const report = await measured.catch((error) => {
      process.stderr.write(`${each} failed: ${error instanceof Error ? error.message : error}\n`)
      failed = true
    })
    if (report === undefined) continue // continue with the others
    reports.push(report)
    scenarios.push(scenario)
    process.stdout.write(terminalTable(report, scenario))
  }
  if (name === undefined) writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), reports, scenarios))
  if (options.json) process.stdout.write(`${JSON.stringify(name === undefined ? merged(reports) : reports[0])}\n`)
  if (options.assert && reports.some((report, index) => missesTarget(report, scenarios[index]))) return 1
  return failed ? 1 : 0
}

/** A target without a ratio is missed, unless the scenario was skipped. */
function missesTarget({ ratios }: Report, scenario: Scenario | undefined): boolean {
  if (scenario === undefined || scenario.isGate === false || Object.keys(ratios).length === 0) return false
  return Object.entries(scenario.targets).some(([name, target]) => {
    const value = ratios[name]
    return value === undefined || !meetsTarget(value, target)
  })
}

/** Parses the arguments; returns an error text if they are invalid. */
function parseOptions(args: string[]): { name: ScenarioName | undefined; options: Options } | string {
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        json: { type: 'boolean', default: false },
        assert: { type: 'boolean', default: false },
        rounds: { type: 'string' },
      },
    })
    const [name, ...more] = positionals
    if (more.length > 0) return `give one scenario (got ${positionals.join(' ')})`
    if (name !== undefined && !isScenario(name)) return `unknown scenario "${name}"`
    const rounds = values.rounds === undefined ? undefined : Number(values.rounds)
    if (rounds !== undefined && !(Number.isInteger(rounds) && rounds > 0))
      return `--rounds ${values.rounds}: give a positive integer`
    return { name, options: { ...values, rounds } }
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

async function reportOf(name: ScenarioName, scenario: Scenario, { rounds }: Options): Promise<Report> {
  progress(`${name}: ${scenario.what}`)
  return { scenario: name, machine: thisMachine(), ...(await scenario.run({ rounds })) }
}

/** Runs a scenario in its own process, so that it starts with a small heap. */
async function inOwnProcess(name: ScenarioName, { rounds }: Options): Promise<Report> {
  const args = [
    fileURLToPath(import.meta.url),
    name,
    '--json',
    ...(rounds === undefined ? [] : ['--rounds', `${rounds}`]),
  ]
  const child = spawn(process.execPath, ['--expose-gc', ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  process.once('exit', () => child.kill())
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  let output = ''
  for await (const text of child.stdout.setEncoding('utf8')) output += text
  const code = await ended
  if (code !== 0) throw new Error(`scenario ${name} exited with code ${code}`)
  return JSON.parse(output.trimEnd().split('\n').at(-1) ?? '') as Report
}

/** Merges all reports into one. A ratio whose name an earlier scenario has gets the scenario as a prefix. */
function merged(reports: readonly Report[]): Report {
  const ratios: Record<string, number> = {}
  for (const report of reports) {
    for (const [name, value] of Object.entries(report.ratios)) {
      ratios[name in ratios ? `${report.scenario}.${name}` : name] = value
    }
  }
  return { scenario: 'all', machine: thisMachine(), results: reports.flatMap((report) => report.results), ratios }
}
