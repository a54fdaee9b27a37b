// `npm run check`: the gate. Generated files are up to date, format, lint and types are clean, every test passes (style
// is one of them: tidy.test.ts). Every step runs even if an earlier one failed; arguments go to vitest.
// The last line is always `N passed, N failed`, and the exit code is 0 only if all is well.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bin, run, runInForeground, seconds, step, steps } from './setup.mjs'

step('checking generated files', () => run(process.execPath, ['scripts/embed.mjs', '--check']))
step('checking format and lint', () => run(bin('biome'), ['check', '.']))
step('checking types', () => run(bin('tsc'), ['-p', 'tsconfig.json']))
const counts = await runTests(process.argv.slice(2))
printSummary()
process.exitCode = steps.every(({ ok }) => ok) ? 0 : 1

async function runTests(args) {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-check-'))
  const report = join(folder, 'report.json')
  const startedMs = performance.now()
  try {
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
    const code = await runInForeground(bin('vitest'), ['run', ...reporters, ...args])
    steps.push({ name: 'running tests', ms: performance.now() - startedMs, ok: code === 0 })
    return countTests(report, code)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A file that fails as a whole, or a run that fails with no failed test (an unhandled error), is a failure too. */
function countTests(report, code) {
  const { testResults: files, ...totals } = readReport(report)
  const brokenFiles = files.filter(
    ({ status, assertionResults }) => status === 'failed' && !assertionResults.some((test) => test.status === 'failed'),
  )
  const failed = totals.numFailedTests + brokenFiles.length
  return {
    passed: totals.numPassedTests,
    failed: Math.max(failed, code === 0 ? 0 : 1),
    skipped: totals.numPendingTests + totals.numTodoTests,
  }
}

function readReport(report) {
  try {
    return JSON.parse(readFileSync(report, 'utf8'))
  } catch {
    return { testResults: [], numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0 } // vitest died
  }
}

function printSummary() {
  const width = Math.max(...steps.map(({ name }) => name.length))
  console.log('')
  for (const { name, ms, ok } of steps) {
    console.log(`${ok ? '  ok    ' : '  FAILED'}  ${name.padEnd(width)}  ${seconds(ms).padStart(8)}`)
  }
  if (counts.skipped > 0) console.log(`${counts.skipped} skipped`)
  console.log(`${counts.passed} passed, ${counts.failed} failed`)
}
