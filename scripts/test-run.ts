// Global setup of a test run. Before it: builds the packages once, because tests that run the built program share its
// files, and makes a folder for all temporary files. After it: stops the PostgreSQL servers that test files share, and
// deletes the folder. A worker cannot do that: it is ended by a signal.

import { spawnSync } from 'node:child_process'
import { appendFileSync, chmodSync, mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs'
import { freemem, tmpdir } from 'node:os'
import { join } from 'node:path'

/** Environment variable with the folder of the run, which is deleted after it. */
export const RUN_FOLDER = 'SLUICE_TEST_RUN'

const MEMORY_FOLDER = '/dev/shm'
/** Several times what a run uses. */
const MEMORY_BYTES_MIN = 8 * 2 ** 30

export function setup(): () => void {
  if (process.env.SLUICE_TESTS !== 'no-servers') buildPackages()
  const folder = mkdtempSync(join(memoryFolder() ?? tmpdir(), 'sluice-test-run-'))
  chmodSync(folder, 0o711) // PostgreSQL runs as another user
  process.env[RUN_FOLDER] = folder
  process.env.TMPDIR = folder // of all tests, and of the programs that they start
  return () => {
    for (const server of new Set(readLines(listOf(folder)))) stopPostgres(server)
    rmSync(folder, { recursive: true, force: true })
  }
}

/** An embedded database has a thousand files: a copy took 0.56 s of CPU time on a busy disk, 0.06 s in memory. */
function memoryFolder(): string | undefined {
  try {
    const { bavail, bsize } = statfsSync(MEMORY_FOLDER)
    return Math.min(bavail * bsize, freemem()) >= MEMORY_BYTES_MIN ? MEMORY_FOLDER : undefined
  } catch {
    return undefined // not Linux
  }
}

function buildPackages(): void {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['scripts/build.mjs'], { encoding: 'utf8' })
  if (status !== 0) throw new Error(`the packages cannot be built: ${stdout}${stderr}`)
}

/** Has the run stop the server of this folder, in which `data` is the data folder of PostgreSQL. */
export function stopAfterRun(folder: string): void {
  const run = process.env[RUN_FOLDER]
  if (run === undefined) throw new Error(`${RUN_FOLDER} is not set: run the tests with vitest.config.ts`)
  appendFileSync(listOf(run), `${folder}\n`)
}

function listOf(folder: string): string {
  return join(folder, 'postgres-folders')
}

function stopPostgres(folder: string): void {
  const [pid] = readLines(join(folder, 'data/postmaster.pid'))
  try {
    if (pid !== undefined) process.kill(Number(pid), 'SIGQUIT')
  } catch {
    // It is gone already.
  }
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
}

function readLines(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').split('\n').filter(Boolean)
  } catch {
    return [] // no test needed PostgreSQL, or it has stopped
  }
}
