// The gate of `npm run check` and `npm test`: generated files are up to date, format, lint and types are clean, and the
// tests pass. Every step runs even if an earlier one failed. Prints the time of each step and of the whole run; the
// last line is always `N passed, N failed`. Sets the exit code to 0 only if every step succeeded.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { bin, run, runInForeground, seconds, step, steps } from './setup.mjs'

/** With `servers: false`, skips tests that start Redis, PostgreSQL or another program. */
export async function runGate({ servers, args }) {
  step('checking generated files', () => {
    const scripts = ['scripts/embed.mjs', 'scripts/descriptors.mjs']
    return scripts.map((script) => run(process.execPath, [script, '--check'])).find((failure) => failure !== undefined)
  })
  step('checking format and lint', () => run(bin('biome'), ['check', '.']))
  step('checking types', () => run(bin('tsc'), ['-p', 'tsconfig.json']))
  step('checking types of the dashboard', () => {
    const projects = ['packages/dashboard/tsconfig.json', 'packages/dashboard/test/tsconfig.json']
    return projects.map((project) => run(bin('tsc'), ['-p', project])).find((failure) => failure !== undefined)
  })
  const counts = await runTests(servers, args)
  printSummary(counts)
  process.exitCode = steps.every(({ ok }) => ok) ? 0 : 1
}

async function runTests(servers, args) {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-check-'))
  const report = join(folder, 'report.json')
  const startedMs = performance.now()
  if (!servers) process.env.SLUICE_TESTS = 'no-servers' // read by vitest.config.ts
  try {
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
    const code = await runInForeground(bin('vitest'), ['run', ...reporters, ...args])
    const name = servers ? 'running all tests' : 'running tests that start no server'
    steps.push({ name, ms: performance.now() - startedMs, ok: code === 0 })
    return countTests(report, code)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Counts a file that fails to load as a failure, and also a run that fails without a failed test. */
function countTests(report, code) {
  const { testResults: files, ...totals } = readReport(report)
  const brokenFiles = files.filter(
    ({ status, assertionResults }) => status === 'failed' && !assertionResults.some((test) => test.status === 'failed'),
  )
  const failed = totals.numFailedTests + brokenFiles.length
  return {
    failures: files.flatMap(describeFailures),
    passed: totals.numPassedTests,
    failed: Math.max(failed, code === 0 ? 0 : 1),
    skipped: totals.numPendingTests + totals.numTodoTests,
  }
}

/** The file, name and first lines of the error of each failed test: a summary for logs that show only their end. */
function describeFailures({ name: path, status, message, assertionResults }) {
  const file = relative(process.cwd(), path)
  const failed = assertionResults.filter((test) => test.status === 'failed')
  if (status === 'failed' && failed.length === 0) return [`${file}: ${firstLines(message)}`]
  return failed.map((test) => `${file} > ${test.fullName}: ${firstLines(test.failureMessages[0])}`)
}

function firstLines(text = '') {
  return text.split('\n').slice(0, 3).join(' ').slice(0, 300)
}

function readReport(report) {
  try {
    return JSON.parse(readFileSync(report, 'utf8'))
  } catch {
    // Vitest crashed before it wrote the report.
    return { testResults: [], numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0 }
  }
}

function printSummary(counts) {
  const sinceStartMs = performance.now()
  const total = { name: 'whole run', ms: sinceStartMs, ok: steps.every(({ ok }) => ok) }
  const width = Math.max(...steps.map(({ name }) => name.length))
  console.log('')
  for (const { name, ms, ok } of [...steps, total]) {
    console.log(`${ok ? '  ok    ' : '  FAILED'}  ${name.padEnd(width)}  ${seconds(ms).padStart(8)}`)
  }
  for (const failure of counts.failures) console.log(`  FAILED  ${failure}`)
  if (counts.skipped > 0) console.log(`${counts.skipped} skipped`)
  console.log(`${counts.passed} passed, ${counts.failed} failed`)
}
